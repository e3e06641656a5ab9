"""Exports: every number is that of report.json, and what flags forbid is a finding."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

import nppr
from nppr.errors import RunFolderError
from nppr.report import Report
from nppr.report.claims import claims_of, forbidding_flags, read_filed
from nppr.report.exports import EXPORTS, write_exports
from nppr.report.findings import interval_of, population_bound, table_rows
from nppr.report.model import Flag, SliceResult
from nppr.report.numbers import percent
from nppr.tally import Claim, Direction, Metric
from report.page.made_runs import failed, made_report

SLICES = tuple(
    SliceResult(
        column="weather", name=name, source="nppr:joint", tally="nppr:joint", metric=Metric.NPPR,
        direction=Direction.UPPER_BOUND, value=value, low=value - 0.1, high=value + 0.123456789,
        confidence=0.95, method="betting", claim=Claim.POPULATION, inputs=40, draws=20,
    )
    for name, value in (("rain | fog", 0.25), ("sun", 0.75))
)  # fmt: skip
STARVED = Flag(id="starved", source="nppr:joint", message="too short", severity="warning")
SERIOUS = Flag(id="near-chance", source=None, message="it guesses", severity="serious")


def kept(folder: Path, *flags: Flag) -> tuple[Report, Any]:
    """A run folder with a report alone, and its content."""
    report = made_report()[0]
    rows = (*report.results, failed("pgd:steps=9", Metric.AR, "it broke"))
    report = report.model_copy(update={"flags": flags, "slices": SLICES, "results": rows})
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(report.to_json())
    return report, json.loads(report.to_json())


def at(content: Any, pointer: str) -> Any:
    for key in pointer.strip("/").split("/"):
        content = content[int(key)] if isinstance(content, list) else content[key]
    return content


def exported(folder: Path, kind: str) -> list[str]:
    return [path.read_text() for path in write_exports(folder, kind)]


def test_every_number_of_the_table_and_of_the_slices_is_a_claim(tmp_path: Path) -> None:
    report, content = kept(tmp_path)
    claims = claims_of(read_filed(tmp_path / "report.json"))
    rows = []
    for row in table_rows(report):
        wider = population_bound(report, row) if row.metric is Metric.BOUND else None
        rows += [each for each in (wider, row) if each is not None and each.value is not None]
    assert sum(row.metric is Metric.BOUND for row in rows) >= 2
    assert len(claims) == len(rows) + len(SLICES)
    values = [*(row.value for row in rows), *(row.value for row in SLICES)]
    for claim, value in zip(claims, values, strict=True):
        entry, used = at(content, claim.pointer), at(content, claim.interval_pointer)
        assert (claim.value, claim.direction) == (entry["value"], entry["direction"])
        assert claim.low in (None, used["low"])
        assert claim.high in (None, used["high"])
        assert (claim.low is None) == (claim.direction is Direction.UPPER_BOUND)
        assert (claim.high is None) == (claim.direction is Direction.LOWER_BOUND)
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert claim.sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert claim.value == value
    assert claims[0].high == interval_of(report, rows[0]).high


def test_the_safety_case_is_a_tree_whose_leaves_are_evidence(tmp_path: Path) -> None:
    _, content = kept(tmp_path, STARVED)
    text, diagram = exported(tmp_path, "safety-case")
    made = json.loads(text)
    nodes = {node["id"]: node for node in made["nodes"]}
    assert len(nodes) == len(made["nodes"])
    assert (
        made["report_sha256"] == hashlib.sha256((tmp_path / "report.json").read_bytes()).hexdigest()
    )
    supporting = [other for node in nodes.values() for other in node["supported_by"]]
    assert len(set(supporting)) == len(supporting)
    for node in nodes.values():
        assert (node["id"] in supporting) == (
            node["kind"] in ("solution", "strategy")
            or (node["kind"] == "goal" and node["id"] != "G1")
        )
        if "evidence" in node:
            evidence = node["evidence"]
            entry = at(content, evidence["pointer"])
            for field in ("value", "confidence", "claim", "direction", "inputs", "draws", "metric"):
                assert evidence[field] == entry[field], field
            used = at(content, evidence["interval_pointer"])
            assert evidence["low"] in (None, used["low"])
            assert evidence["high"] in (None, used["high"])
            assert evidence["seed"] == content["seed"]
            clean = entry["metric"] == "accuracy"
            wanted = "none: the inputs as they are" if clean else "; budget linf 8/255"
            assert evidence["set"].endswith(wanted)
            assert node["kind"] == ("finding" if evidence["flags"] else "solution")
    findings = [node["evidence"]["source"] for node in nodes.values() if node["id"][0] == "F"]
    assert set(findings) == {"nppr:joint"}
    assert [n["text"] for n in nodes.values() if n["id"] == "M1"] == [
        "not measured: AR of pgd:steps=9: it broke"
    ]
    assert diagram.startswith("flowchart TD\n")
    drawn = set(re.findall(r"^  (\w+)[\[\(\{]", diagram, re.MULTILINE))
    assert drawn == {name.replace(".", "_") for name in nodes}
    assert all(line.count('"') in (0, 2) for line in diagram.splitlines())


def test_the_section_prints_the_numbers_of_their_places(tmp_path: Path) -> None:
    _, content = kept(tmp_path, STARVED)
    (text,) = exported(tmp_path, "technical-documentation")
    rows = [line for line in text.splitlines() if "| /" in line]
    assert len(rows) == len(claims_of(read_filed(tmp_path / "report.json")))
    for line in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        pointer = next(cell for cell in cells if cell.startswith("/"))
        entry = at(content, pointer)
        form = "at-least" if entry["direction"] == "lower bound" else "percent"
        assert cells[3] == percent(entry["value"], form)
        assert entry["claim"] in cells
        assert entry["direction"] in cells
    evidence, findings = text.split("### Findings")
    assert "nppr:joint |" in findings
    assert "| nppr:joint |" not in evidence.split("### Evidence")[1]
    assert "ISO/IEC TR 24029-1, statistical methods" in text
    assert "worst weather: rain \\| fog" in text


def test_the_model_card_has_the_numbers_and_their_intervals(tmp_path: Path) -> None:
    _, content = kept(tmp_path, STARVED)
    (text,) = exported(tmp_path, "cyclonedx")
    (component,) = json.loads(text)["components"]
    card = component["modelCard"]
    facts = {each["name"]: each["value"] for each in card["properties"]}
    metrics = card["quantitativeAnalysis"]["performanceMetrics"]
    assert metrics
    for number, metric in enumerate(metrics):
        entry = at(content, facts[f"nppr:metric:{number}:pointer"])
        used = at(content, facts[f"nppr:metric:{number}:interval_pointer"])
        assert float(metric["value"]) == entry["value"]
        ends = metric["confidenceInterval"]
        assert float(ends.get("lowerBound", used["low"])) == used["low"]
        assert float(ends.get("upperBound", used["high"])) == used["high"]
        assert facts[f"nppr:metric:{number}:claim"] == entry["claim"]
        assert facts[f"nppr:metric:{number}:seed"] == str(content["seed"])
    assert not any("nppr:joint (" in metric["type"] for metric in metrics)
    limits = card["considerations"]["technicalLimitations"]
    assert any(each.startswith("Not evidence (starved)") for each in limits)


def test_the_model_card_is_valid_by_the_published_schema(tmp_path: Path) -> None:
    if not importlib.util.find_spec("cyclonedx") or not importlib.util.find_spec("jsonschema"):
        pytest.skip("needs the package cyclonedx-python-lib[json-validation]")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    report, _ = kept(tmp_path, STARVED)
    known = report.classifier.model_copy(update={"weights_sha256": "ab" * 32})
    hashed = report.model_copy(update={"classifier": known})
    (tmp_path / "report.json").write_text(hashed.to_json())
    (text,) = exported(tmp_path, "cyclonedx")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_a_serious_flag_leaves_no_evidence(tmp_path: Path) -> None:
    kept(tmp_path, SERIOUS)
    claims = claims_of(read_filed(tmp_path / "report.json"))
    assert {each.because for each in claims} == {("near-chance",)}
    (text,) = exported(tmp_path, "technical-documentation")
    assert "None: flags make all numbers of this run unreliable." in text


def test_a_flag_of_an_earlier_version_forbids_where_the_grade_does(tmp_path: Path) -> None:
    report, _ = kept(tmp_path, STARVED.model_copy(update={"severity": None}))
    for letter, forbidden in (("B", False), ("C", True)):
        grade = report.grade.model_copy(update={"letter": letter})
        graded = report.model_copy(update={"grade": grade})
        (tmp_path / "report.json").write_text(graded.to_json())
        claims = claims_of(read_filed(tmp_path / "report.json"))
        assert any(each.because for each in claims) == forbidden


@pytest.mark.parametrize("kind", EXPORTS)
def test_the_same_report_gives_the_same_bytes(kind: str, tmp_path: Path) -> None:
    kept(tmp_path)
    first = exported(tmp_path, kind)
    assert first == exported(tmp_path / "report.json", kind)
    assert (tmp_path / "exports").is_dir()


def test_a_weak_attack_is_the_finding_not_the_noise_that_exposed_it() -> None:
    weak = Flag(id="attack-too-weak", source="nppr:joint", message="", severity="warning")
    noise = forbidding_flags([weak], ("nppr:joint",), Metric.NPPR, Direction.UPPER_BOUND)
    attack = forbidding_flags([weak], ("pgd",), Metric.AR, Direction.UPPER_BOUND)
    assert (noise, attack) == ((), ("attack-too-weak",))


def test_a_report_that_was_edited_is_refused(tmp_path: Path) -> None:
    nppr.assess(inputs=40, draws=4, sources="uniform", out=tmp_path / "run")
    path = tmp_path / "run" / "report.json"
    assert write_exports(tmp_path / "run", "safety-case")
    content = json.loads(path.read_text())
    content["results"][0]["value"] = content["results"][0]["high"] = 0.99999
    path.write_text(json.dumps(content))
    with pytest.raises(RunFolderError, match=r"per_input\.csv"):
        write_exports(tmp_path / "run", "safety-case")
