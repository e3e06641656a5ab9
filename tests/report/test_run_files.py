"""A run folder that cannot be read gives one line that names what is wrong."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pytest
import torch

from nppr.core.tally import Metric
from nppr.errors import RunFolderError
from nppr.report import model, read_report, read_run, schema_text
from nppr.report.evidence import Evidence, NoiseDraws, write_evidence
from nppr.report.model import PrecisionRecord, Width
from nppr.search import search_record
from report.page.made_runs import RARE, made_evidence, made_report, write_run

PRECISION = PrecisionRecord(
    asked=0.05, reached=True, rounds=((60, 32),), available_inputs=60, needed_inputs=None,
    widths={"nppr": Width(half_width=0.03, between=0.1, within=0.1)},
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    report, per_input = made_report()
    report = report.model_copy(update={"rare": (RARE,), "precision": PRECISION})
    return write_run(tmp_path / "run", report, per_input, made_evidence())


def test_a_run_is_read_whole(folder: Path) -> None:
    text = (folder / "report.json").read_text()
    for path in (folder, str(folder), folder / "report.json"):
        files = read_run(path)
        assert files.path == folder
        assert files.report.to_json() == text
        assert files.report.per_input is files.per_input
        assert files.evidence is not None
        assert len(files.evidence.worst) == 2


def test_inputs_and_pictures_may_be_missing(folder: Path) -> None:
    (folder / "per_input.csv").unlink()
    (folder / "evidence.safetensors").unlink()
    files = read_run(folder)
    assert files.per_input is None
    assert files.evidence is None
    with pytest.raises(RunFolderError, match=r"nppr\.read_run\(FOLDER\)\.report"):
        _ = read_report(folder / "report.json").per_input


def refused(path: Path) -> str:
    with pytest.raises(RunFolderError) as caught:
        read_run(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_no_run_is_there(tmp_path: Path) -> None:
    assert "which does not exist" in refused(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    assert "which is a file" in refused(tmp_path / "file")
    assert "holds no report.json" in refused(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    assert "Repeat its command with --resume" in refused(tmp_path)
    with pytest.raises(RunFolderError, match="cannot read"):
        read_report(tmp_path / "report.json")


RELEASE = version_of("nppr")


@pytest.mark.parametrize("version", [1, 2, 4, "new", None])
def test_a_report_of_another_version_names_who_wrote_it(folder: Path, version: object) -> None:
    file = folder / "report.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "schema_version": version, "nppr_version": "9.1.0"}))
    message = refused(folder)
    assert f"schema version 3, which nppr {version_of('nppr')} reads, got {version!r}" in message
    assert f"nppr 9.1.0 wrote {file}." in message
    assert "Repeat its command in a new folder, or read the file with that release." in message


def test_a_report_of_another_version_and_this_release_must_be_repeated(folder: Path) -> None:
    file = folder / "report.json"
    changed = {"schema_version": 2, "nppr_version": RELEASE}
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    assert refused(folder).endswith("Repeat its command in a new folder.")


def test_a_report_that_is_cut_off_or_edited(folder: Path) -> None:
    file = folder / "report.json"
    text = file.read_text()
    file.write_text(text[: text.index('"budget"') + 30])
    assert "is cut off or edited: Invalid JSON: EOF" in refused(folder)
    file.write_text("")
    assert "is cut off" in refused(folder)
    file.write_text("[]")
    assert "`report` field ''" in refused(folder)
    file.write_bytes(b"\xff\xfe")
    assert "must be readable" in refused(folder)


def edited(folder: Path, field: str, wrong: Any = ...) -> str:
    """The message where a field is missing, or has another value."""
    file = folder / "report.json"
    inner = content = json.loads(file.read_text())
    *parents, last = (int(name) if name.isdigit() else name for name in field.split("."))
    for name in parents:
        inner = inner[name]
    if wrong is ...:
        del inner[last]
    else:
        inner[last] = wrong
    file.write_text(json.dumps(content))
    return refused(folder)


@pytest.mark.parametrize(
    "field",
    ["classifier.name", "data.inputs.evaluate", "grade.letter", "distributions.1.name", "seed"],
)
def test_a_missing_field_is_named(folder: Path, field: str) -> None:
    assert f"`report` field {field!r}" in edited(folder, field)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("settings.measure.confidence", "high"),
        ("settings.measure.confidence", None),
        ("settings.measure.confidence", True),
        ("settings.measure.confidence", 95),
        ("seed", -1),
        ("numbers.0.metric", "recall"),
        ("numbers.0.value", "high"),
        ("numbers.0.direction", None),
        ("numbers.0.intervals", []),
        ("numbers.0.intervals.0.low", None),
        ("numbers.0.intervals.0.claim", None),
        ("numbers.0.value", 1e308),
        ("numbers.0.intervals.0.low", -1e308),
        ("numbers", []),
        ("settings.search.family.dependency", "everything"),
        ("settings.sources.0.fixed", "yes"),
        ("distributions.0.search.stages.0.floor", []),
        ("rare.0.below", 0.5),
        ("precision.rounds.0.1", "many"),
        ("precision.widths.nppr.half_width", None),
        ("timing.seconds.clean", "long"),
        ("data.class_names", 3),
    ],
)
def test_a_wrong_value_is_named(folder: Path, field: str, wrong: object) -> None:
    assert field in edited(folder, field, wrong)


def test_a_structure_that_is_not_declared_is_named(folder: Path) -> None:
    message = edited(folder, "numbers.20.subject.structure", "stripes")
    assert "numbers.20.subject.structure" in message
    assert "expected one of white, stationary, any, got 'stripes'" in message


def test_settings_that_no_search_has_are_one_line(folder: Path) -> None:
    assert "`covariance` must be one of" in edited(
        folder, "settings.search.family.covariance", "round"
    )


def test_cut_inputs_are_noticed(folder: Path) -> None:
    file = folder / "per_input.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:100]))
    assert "'gaussian' has 99 lines of 99 inputs, not 120" in refused(folder)
    file.write_text("\n".join([*lines[:121], *lines[122:], lines[122]]))
    assert "'uniform' has 120 lines of 119 inputs, not 120" in refused(folder)


def with_cells(folder: Path, line: int, **values: str) -> str:
    """The message where cells of a line have other values."""
    file = folder / "per_input.csv"
    lines = file.read_text().splitlines()
    cells = dict(zip(lines[0].split(","), lines[line - 1].split(","), strict=True))
    lines[line - 1] = ",".join({**cells, **values}.values())
    file.write_text("\n".join(lines))
    return refused(folder)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"correct": "21"}, "line 4 'correct' is 21, not in [0, 20]"),
        ({"rate": "0.123"}, "line 4 'rate' is not 'correct' / 'draws'"),
        ({"rate": "1.5"}, "line 4 'rate' is 1.5, not in [0, 1]"),
        ({"rate": "nan"}, "'rate' is nan"),
        ({"label": "10"}, "'label' is 10, not in [0, 9]"),
        ({"correct": "0", "rate": "0"}, "the PR of 'gaussian' is"),
    ],
)
def test_inputs_of_other_numbers_are_noticed(
    folder: Path, values: dict[str, str], fault: str
) -> None:
    assert fault in with_cells(folder, 4, **values)


def made_draws() -> NoiseDraws:
    """Draws of two inputs."""
    images, number = torch.zeros(2, 3, 1, 4, 4).half(), torch.arange(2)
    mixture = torch.ones(3, 4), torch.ones(3, 4), torch.ones(3, 2, 2), torch.ones(3, 2)
    return NoiseDraws("nppr", number, number, images, images, torch.ones(2, 3), *mixture)


def test_damaged_pictures_are_named(folder: Path) -> None:
    file = folder / "evidence.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    assert "Remove the file" in refused(folder)
    worst, draws = made_evidence().worst[0], made_draws()
    wrong: list[tuple[Any, str]] = [
        (
            replace(worst, labels=worst.labels[:2]),
            "shape (2,), not (n) with {'n': 8}, in 'labels' of 'pgd'",
        ),
        (replace(worst, delta=torch.zeros(8, 3, 2, 2)), "shape (8, 3, 2, 2), not (n, C, H, W)"),
        (replace(worst, clean=worst.clean[0]), "shape (3, 8, 8), not (n, C, H, W)"),
        (replace(worst, labels=worst.labels.float()), "'labels' must hold whole numbers"),
        (replace(draws, weights=torch.ones(2, 3).long()), "'weights' must hold real numbers"),
        (replace(draws, covariances=torch.ones(3, 2, 4)), "in 'covariances' of 'nppr'"),
    ]
    for record, fault in wrong:
        both = Evidence((), (record,)) if isinstance(record, NoiseDraws) else Evidence((record,))
        write_evidence(folder, both)
        assert fault in refused(folder)
    write_evidence(folder, Evidence((), (draws,)))
    assert read_run(folder).evidence is not None


def test_every_field_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    files_only = {"LawRecord", "FinishedStageRecord", "LearnedNoiseRecord"}
    records = [
        each
        for name, each in {**vars(model), **vars(search_record)}.items()
        if isinstance(each, type) and issubclass(each, search_record.Record)
        if name not in files_only
    ]
    assert model.ReportRecord in records
    assert search_record.SearchConditions in records
    for record in records:
        for name in record.model_fields:
            assert f"`{name}`" in text, f"{record.__name__}.{name}"
    for metric in Metric:
        assert f"`{metric.value}`" in text, metric
    assert f"schema version {model.SCHEMA_VERSION}" in text


def test_a_report_without_later_fields_is_read(folder: Path) -> None:
    """Fields with a default may be missing."""
    path = folder / "report.json"
    content = json.loads(path.read_text())
    del content["slices"], content["classifier"]["weights_sha256"]
    for each in content["flags"]:
        del each["severity"]
    path.write_text(json.dumps(content))
    assert read_run(folder).report.slices == ()


SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


def test_the_published_schema_is_that_of_the_records() -> None:
    same = SCHEMA.read_text(encoding="utf-8") == schema_text()
    assert same, "write it again: nppr schema --out docs/report.schema.json"


def test_a_report_is_valid_by_the_published_schema(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    content = json.loads((folder / "report.json").read_text())
    kinds = {each["subject"]["kind"] for each in content["numbers"]}
    assert kinds >= {"clean", "noise", "learned", "attack", "merged", "bound"}
    validator.validate(content)
    for change in ({"kind": "rumour"}, {"radius": "large"}, {"colour": "red"}):
        wrong = copy.deepcopy(content)
        wrong["numbers"][1]["subject"] |= change
        assert not validator.is_valid(wrong), change
