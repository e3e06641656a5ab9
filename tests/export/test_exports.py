"""Exports: every number is that of report.json, and what flags forbid is a finding."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import nppr
from installed_package import install
from nppr.core.tally import Claim, Direction, Metric
from nppr.doctor.flags import ATTACK_TOO_WEAK, LIMITS, SEVERITY, Severity, flag
from nppr.errors import PluginError, RunFolderError, SpecError
from nppr.export.claims import claims_of, doubting_flags, read_filed
from nppr.export.documents import Document
from nppr.export.exports import EXPORTS, write_exports
from nppr.report import Report
from nppr.report.findings import table_rows
from nppr.report.gate_record import Decision, GateRecord
from nppr.report.model import Flag, SliceResult
from nppr.report.printed_numbers import percent
from nppr.statistics.sequential import Verdict
from report.page.made_runs import failed, made_report

SLICES = tuple(
    SliceResult(
        column="weather", name=name, source="nppr:joint", tally="nppr:joint", metric=Metric.NPPR,
        direction=Direction.UPPER_BOUND, value=value, low=value - 0.1, high=value + 0.123456789,
        confidence=0.95, method="betting", claim=Claim.POPULATION, inputs=40, draws=20,
    )
    for name, value in (("rain | fog", 0.25), ("sun", 0.75))
)  # fmt: skip
MILD = SLICES[1].model_copy(
    update={
        "column": "hour", "source": "gaussian", "tally": "gaussian", "metric": Metric.PR,
        "direction": Direction.ESTIMATE,
    }
)  # fmt: skip
STARVED = Flag(id="starved", source="nppr:joint", message="too short", severity="warning")
ODD = Flag(
    id="odd", source="gaussian", message="too high", severity="warning",
    limits=(Direction.ESTIMATE, Direction.LOWER_BOUND),
)  # fmt: skip
SERIOUS = Flag(id="randomised", source=None, message="passes differ", severity="serious")


def kept(folder: Path, *flags: Flag) -> tuple[Report, Any]:
    """A run folder with a report alone, and its content."""
    report = made_report()[0]
    rows = (*report.numbers, failed("pgd:steps=9", Metric.AR, "it broke"))
    slices = (*SLICES, MILD)
    report = report.model_copy(update={"flags": flags, "slices": slices, "numbers": rows})
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
    values = []
    for row in table_rows(report):
        values += [row.population.low] if row.is_lower_bound and row.population else []
        values += [row.value] if row.value is not None else []
    assert sum(claim.direction is Direction.LOWER_BOUND for claim in claims) >= 2
    values += [row.value for row in (*SLICES, MILD)]
    for claim, value in zip(claims, values, strict=True):
        entry, used = at(content, claim.pointer), at(content, claim.interval_pointer)
        if "value" in entry:
            assert (claim.value, claim.direction) == (entry["value"], entry["direction"])
        else:
            assert (claim.value, claim.claim) == (entry["low"], entry["claim"])
        assert claim.low in (None, used["low"])
        assert claim.high in (None, used["high"])
        assert (claim.low is None) == (claim.direction is Direction.UPPER_BOUND)
        assert (claim.high is None) == (claim.direction is Direction.LOWER_BOUND)
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert claim.sha256 == hashlib.sha256(text.encode()).hexdigest()
        assert claim.value == value
    first = table_rows(report)[0].shown
    assert first is not None
    assert claims[0].high == first.high


def test_the_safety_case_is_a_tree_whose_leaves_are_evidence(tmp_path: Path) -> None:
    _, content = kept(tmp_path, ODD)
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
            or (node["kind"] == "goal" and node["id"] != "G5.1")
        )
    leaves = [node for node in nodes.values() if "evidence" in node]
    assert len(leaves) > 5
    for node in leaves:
        evidence = node["evidence"]
        entry = at(content, evidence["pointer"])
        used = at(content, evidence["interval_pointer"])
        whole = at(content, "/".join(evidence["pointer"].split("/")[:3]))
        for field in ("confidence", "direction", "inputs", "draws", "metric"):
            assert evidence[field] == whole[field], field
        assert evidence["value"] == entry.get("value", entry.get("low"))
        assert evidence["claim"] == used["claim"]
        assert evidence["low"] in (None, used["low"])
        assert evidence["high"] in (None, used["high"])
        assert evidence["seed"] == content["seed"]
        clean = whole["metric"] == "accuracy"
        wanted = "none: the inputs as they are" if clean else "; budget linf 8/255"
        assert evidence["set"].endswith(wanted)
        assert node["kind"] == ("finding" if evidence["flags"] else "solution")
    findings = [node["evidence"]["source"] for node in nodes.values() if node["id"][0] == "F"]
    assert set(findings) == {"gaussian"}
    assert [n["text"] for n in nodes.values() if n["id"] == "M1"] == [
        "not measured: AR of pgd:steps=9: it broke"
    ]
    assert diagram.startswith("flowchart TD\n")
    drawn = set(re.findall(r"^  (\w+)[\[\(\{]", diagram, re.MULTILINE))
    assert drawn == {name.replace(".", "_") for name in nodes}
    assert all(line.count('"') in (0, 2) for line in diagram.splitlines())


def test_the_section_prints_the_numbers_of_their_places(tmp_path: Path) -> None:
    _, content = kept(tmp_path, ODD)
    (text,) = exported(tmp_path, "technical-documentation")
    rows = [line for line in text.splitlines() if "| /" in line]
    assert len(rows) == len(claims_of(read_filed(tmp_path / "report.json")))
    for line in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        pointer = next(cell for cell in cells if cell.startswith("/"))
        entry = at(content, pointer)
        whole = at(content, "/".join(pointer.split("/")[:3]))
        form = "at-least" if whole["direction"] == "lower bound" else "percent"
        assert cells[3] == percent(entry.get("value", entry.get("low")), form)
        used = at(content, [cell for cell in cells if cell.startswith("/")][1])
        assert used["claim"] in cells
        assert whole["direction"] in cells
    evidence, findings = text.split("### Findings")
    assert "| gaussian |" in findings
    assert "| gaussian |" not in evidence.split("### Evidence")[1]
    assert "measured on 2026-01-31 (UTC)" in text
    assert "worst weather: rain \\| fog" in text


def test_the_model_card_has_the_numbers_and_their_intervals(tmp_path: Path) -> None:
    _, content = kept(tmp_path, ODD)
    (text,) = exported(tmp_path, "cyclonedx")
    (component,) = json.loads(text)["components"]
    card = component["modelCard"]
    facts = {each["name"]: each["value"] for each in card["properties"]}
    metrics = card["quantitativeAnalysis"]["performanceMetrics"]
    assert metrics
    for number, metric in enumerate(metrics):
        entry = at(content, facts[f"nppr:metric:{number}:pointer"])
        used = at(content, facts[f"nppr:metric:{number}:interval_pointer"])
        assert float(metric["value"]) == entry.get("value", entry.get("low"))
        ends = metric["confidenceInterval"]
        assert float(ends.get("lowerBound", used["low"])) == used["low"]
        assert float(ends.get("upperBound", used["high"])) == used["high"]
        assert facts[f"nppr:metric:{number}:claim"] == used.get("claim")
        assert facts[f"nppr:metric:{number}:seed"] == str(content["seed"])
    assert not any("gaussian (" in metric["type"] for metric in metrics)
    limits = card["considerations"]["technicalLimitations"]
    assert any(each.startswith("Not evidence (odd)") for each in limits)
    assert facts["nppr:run:date"] == "2026-01-31"


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
    assert {each.because for each in claims} == {("randomised",)}
    (text,) = exported(tmp_path, "technical-documentation")
    assert "None: flags make all numbers of this run unreliable." in text


def evidence_in(kind: str, texts: list[str]) -> set[str]:
    """The places of the numbers that a document of this kind states as evidence."""
    if kind == "safety-case":
        nodes = json.loads(texts[0])["nodes"]
        return {node["evidence"]["pointer"] for node in nodes if node["kind"] == "solution"}
    if kind == "technical-documentation":
        evidence = texts[0].split("### Evidence")[1].split("### Findings")[0]
        return {
            rows[0]
            for rows in re.findall(r"\| (/(numbers|slices)/\d+(/intervals/1)?) \|", evidence)
        }
    assert kind == "cyclonedx", f"state where {kind} has its evidence"
    card = json.loads(texts[0])["components"][0]["modelCard"]
    properties = card["properties"]
    return {p["value"] for p in properties if re.fullmatch(r"nppr:metric:\d+:pointer", p["name"])}


@pytest.mark.parametrize("kind", EXPORTS.own())
@pytest.mark.parametrize("name", SEVERITY)
def test_a_flag_takes_away_comfort_and_no_valid_unfavourable_number(
    name: str, kind: str, tmp_path: Path
) -> None:
    """Every flag, on the run and on every source, in every export, for rows and slices."""
    sources = (None, "nppr:joint", "gaussian", "pgd:steps=10", "laplace")
    flags = tuple(flag(name, "found", source) for source in sources)
    kept(tmp_path, *flags)
    claims = claims_of(read_filed(tmp_path / "report.json"))
    assert {each.direction for each in claims} == set(Direction)
    slices = {each.direction for each in claims if each.pointer.startswith("/slices")}
    assert slices == {Direction.UPPER_BOUND, Direction.ESTIMATE}
    texts = exported(tmp_path, kind)
    stated = evidence_in(kind, texts)
    for each in claims:
        assert (each.pointer in stated) == (each.direction not in LIMITS[name]), each.sentence
    harmless = SEVERITY[name] in (Severity.NOTE, Severity.INFORMATION)
    reminded = not harmless and Direction.UPPER_BOUND not in LIMITS[name]
    assert any(name in each.remarks for each in claims) == reminded
    remark = f"| {name} |" if kind == "technical-documentation" else f"lower still ({name})"
    assert (remark in texts[0].split("### Findings")[0]) == reminded


@pytest.mark.parametrize("source", ["nppr:joint", None])
@pytest.mark.parametrize("severity", ["note", "warning", "serious", None])
@pytest.mark.parametrize("letter", ["B", "C"])
def test_a_flag_of_an_earlier_version_forbids_upper_bounds_only_if_it_is_serious(
    letter: str, severity: str | None, source: str | None, tmp_path: Path
) -> None:
    report, _ = kept(tmp_path, STARVED.model_copy(update={"severity": severity, "source": source}))
    graded = report.model_copy(update={"grade": report.grade.model_copy(update={"letter": letter})})
    (tmp_path / "report.json").write_text(graded.to_json())
    claims = claims_of(read_filed(tmp_path / "report.json"))
    searched = [each for each in claims if each.direction is Direction.UPPER_BOUND]
    assert searched
    assert any(each.because for each in searched) == (severity == "serious")
    warned = severity == "warning" or (severity is None and letter == "C")
    assert any(each.remarks for each in searched) == warned


def decided(folder: Path, report: Report, *verdicts: Verdict) -> Path:
    """The JSON of a gate on the classifier of a report, with these verdicts."""
    record = GateRecord(
        nppr_version="0.1.0", policy="release", classifier=report.classifier, data="pictures",
        data_fingerprint="cd34", budget=report.budget, seed=0, confidence=0.95, tested=len(verdicts),
        calls=100,
        decisions=tuple(
            Decision(requirement=f"PR x >= 0.{at}", verdict=verdict, statement="So it is", why="")
            for at, verdict in enumerate(verdicts, 1)
        ),
    )  # fmt: skip
    path = folder / "gate.json"
    path.write_text(record.to_json())
    return path


@pytest.mark.parametrize("worst", list(Verdict))
def test_the_requirements_of_a_gate_fill_the_pattern_of_amlas(
    worst: Verdict, tmp_path: Path
) -> None:
    report, _ = kept(tmp_path)
    gate = decided(tmp_path, report, Verdict.HOLDS, worst)
    text, diagram = (path.read_text() for path in write_exports(tmp_path, "safety-case", gate=gate))
    nodes = {node["id"]: node for node in json.loads(text)["nodes"]}
    top, words = nodes["G5.1"], nodes["G5.1"]["text"]
    assert top["supported_by"] == ["S5.1", "G5.2"]
    assert nodes["G5.2"]["undeveloped"]
    assert nodes["S5.1"]["supported_by"] == ["G5.3", "G1"]
    assert nodes["S5.1"]["in_context_of"] == ["J5.1"]
    assert "no verdict based on draws is wrong" in nodes["J5.1"]["text"]
    assert words.startswith("resnet20 satisfies") == (worst is Verdict.HOLDS)
    assert "the policy release" in words
    held = ["R1", "R2"] if worst is Verdict.HOLDS else ["R1"]
    assert nodes["G5.3"]["supported_by"] == held
    assert (nodes["R2"]["kind"] == "solution") == (worst is Verdict.HOLDS)
    evidence = nodes["R2"]["evidence"]
    assert at(json.loads(gate.read_text()), evidence["pointer"])["verdict"] == worst.value
    assert evidence["sha256"] == hashlib.sha256(gate.read_bytes()).hexdigest()
    assert "  S5_1 -.- J5_1" in diagram


def test_without_a_gate_no_requirement_is_claimed(tmp_path: Path) -> None:
    kept(tmp_path)
    nodes = {node["id"]: node for node in json.loads(exported(tmp_path, "safety-case")[0])["nodes"]}
    assert nodes["G5.1"]["text"].startswith("Open: no requirement is given")
    assert "G5.3" not in nodes
    assert nodes["G1"]["text"].endswith("has been measured as follows")
    estimated = nodes["G2"]["text"]
    assert "were estimated as follows, each number at its own confidence" in estimated


def test_a_gate_on_another_classifier_is_refused(tmp_path: Path) -> None:
    report, _ = kept(tmp_path)
    other = report.classifier.model_copy(update={"fingerprint": "ff"})
    gate = decided(tmp_path, report.model_copy(update={"classifier": other}), Verdict.HOLDS)
    with pytest.raises(RunFolderError, match="`gate` must be about the classifier of the run"):
        write_exports(tmp_path, "safety-case", gate=gate)
    with pytest.raises(SpecError, match="`gate` must be given with safety-case"):
        write_exports(tmp_path, "cyclonedx", gate=gate)


@pytest.mark.parametrize(
    ("data", "task"),
    [
        ({}, "classification"),
        ({"task": "it is close", "task_kind": "regression"}, "regression"),
        ({"task": "it is close"}, None),
    ],
)
def test_the_task_of_the_model_card_is_that_of_the_run(
    data: dict[str, str], task: str | None, tmp_path: Path
) -> None:
    report, _ = kept(tmp_path)
    told = report.model_copy(update={"data": report.data.model_copy(update=data)})
    (tmp_path / "report.json").write_text(told.to_json())
    (text,) = exported(tmp_path, "cyclonedx")
    parameters = json.loads(text)["components"][0]["modelCard"]["modelParameters"]
    assert parameters.get("task") == task


def test_the_methods_are_those_of_the_standards(tmp_path: Path) -> None:
    kept(tmp_path)
    (text,) = exported(tmp_path, "technical-documentation")
    rows = [line for line in text.splitlines() if "| /" in line]
    assert all("ISO/IEC TR 24029-1, statistical methods" in line for line in rows)
    assert not any("empirical" in line for line in rows)
    assert "ISO/IEC 24029-3 on statistical methods is a draft" in text


@pytest.mark.parametrize("kind", EXPORTS.own())
def test_every_export_carries_the_date_of_the_run(kind: str, tmp_path: Path) -> None:
    kept(tmp_path)
    assert all("2026-01-31" in text for text in exported(tmp_path, kind))


@pytest.mark.parametrize("kind", EXPORTS.own())
def test_the_same_report_gives_the_same_bytes(kind: str, tmp_path: Path) -> None:
    kept(tmp_path)
    first = exported(tmp_path, kind)
    assert first == exported(tmp_path / "report.json", kind)
    assert (tmp_path / "exports").is_dir()


def test_a_weak_attack_is_doubted_not_the_noise_that_exposed_it() -> None:
    weak = flag(ATTACK_TOO_WEAK, source="nppr:joint")
    noise = doubting_flags([weak], ("nppr:joint",), Metric.NPPR, Direction.UPPER_BOUND)
    attack = doubting_flags([weak], ("pgd",), Metric.AR, Direction.UPPER_BOUND)
    assert (noise, attack) == ([], [weak])


def test_a_report_that_was_edited_is_refused(tmp_path: Path) -> None:
    nppr.assess(
        sources="uniform",
        measure=nppr.Measure(inputs=40, draws=4),
        run=nppr.Run(out=tmp_path / "run"),
    )
    path = tmp_path / "run" / "report.json"
    assert write_exports(tmp_path / "run", "safety-case")
    content = json.loads(path.read_text())
    first = content["numbers"][0]
    first["value"] = first["intervals"][0]["high"] = 0.99999
    path.write_text(json.dumps(content))
    with pytest.raises(RunFolderError, match=r"per_input\.csv"):
        write_exports(tmp_path / "run", "safety-case")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("lambda filed: 5", "TypeError: the function of a file must return text, got int"),
        ("lambda filed: sys.exit(0)", r"it raised SystemExit: 0 at .*their_docs.py:2\."),
    ],
)
def test_a_document_of_a_package_that_fails_is_one_line_and_writes_nothing(
    make: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        f"import sys; from nppr.export.documents import Document\nD = Document({{'.md': {make}}})"
    )
    install(tmp_path, "their-docs", {"nppr.exports": {"theirs": "their_docs:D"}}, their_docs=text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_docs", raising=False)
    monkeypatch.setattr("nppr.export.exports.EXPORTS", EXPORTS.copy())
    kept(tmp_path / "run")
    with pytest.raises(PluginError, match=f"export 'theirs' of their-docs 1.0 .*{reason}"):
        write_exports(tmp_path / "run", "theirs")
    assert not (tmp_path / "run" / "exports").exists()


@pytest.mark.parametrize("suffixes", [(), ("md",), ("/../x.md",)])
def test_a_document_has_files_with_suffixes(suffixes: tuple[str, ...]) -> None:
    with pytest.raises(SpecError, match=r"`files` must have the suffix of each file"):
        Document({suffix: lambda _: "" for suffix in suffixes})
