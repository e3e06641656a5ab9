"""A run folder that cannot be read is told in one line that names what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nppr.errors import RunFolderError
from nppr.report.evidence import Draws, Evidence, write_evidence
from nppr.report.folder import read_run
from report.page.made_runs import made_evidence, made_report, write_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", *made_report(), made_evidence())


def test_a_run_is_read_whole(folder: Path) -> None:
    for path in (folder, str(folder), folder / "report.json"):
        files = read_run(path)
        assert files.path == folder
        assert files.report.to_json() == made_report()[0].to_json()
        assert files.per_input is not None
        assert files.evidence is not None
        assert len(files.evidence.worst) == 2


def test_inputs_and_pictures_may_be_missing(folder: Path) -> None:
    (folder / "per_input.csv").unlink()
    (folder / "evidence.safetensors").unlink()
    files = read_run(folder)
    assert files.per_input is None
    assert files.evidence is None


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


def test_a_newer_report_says_who_can_read_it(folder: Path) -> None:
    file = folder / "report.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "schema_version": 2, "nppr_version": "9.1.0"}))
    message = refused(folder)
    assert "has 2 and was written by nppr 9.1.0" in message
    assert "Read it with nppr 9.1.0 or later" in message
    unnamed = {name: value for name, value in content.items() if name != "nppr_version"}
    file.write_text(json.dumps({**unnamed, "schema_version": 2}))
    assert "has 2. Read it with the version of nppr that wrote it." in refused(folder)
    file.write_text(json.dumps({**content, "schema_version": "new"}))
    assert "schema version 1, got 'new'" in refused(folder)


def test_a_truncated_report_names_the_field(folder: Path) -> None:
    file = folder / "report.json"
    text = file.read_text()
    file.write_text(text[: text.index('"budget"') + 30])
    message = refused(folder)
    assert "cut off or edited behind field 'norm', line" in message
    file.write_text("")
    assert "cut off" in refused(folder)
    file.write_text("[]")
    assert "with fields" in refused(folder)
    file.write_bytes(b"\xff\xfe")
    assert "readable report.json" in refused(folder)


def made_draws() -> Draws:
    """Draws of two inputs."""
    images, number = torch.zeros(2, 3, 1, 4, 4).half(), torch.arange(2)
    parts = torch.ones(3, 4), torch.ones(3, 4), torch.ones(3, 2, 2), torch.ones(3, 2)
    return Draws("nppr", number, number, images, images, torch.ones(2, 3), *parts)


def without(content: Any, path: str) -> None:
    """Remove what stands at a path."""
    *parents, last = path.split(".")
    for name in parents:
        content = content[int(name) if name.isdigit() else name]
    del content[last]


@pytest.mark.parametrize(
    "field",
    [
        "classifier.name",
        "data.inputs.evaluate",
        "budget.radius",
        "settings.confidence",
        "grade.letter",
        "timing.total_seconds",
        "distributions.1.family.floor",
        "results.0.value",
        "seed",
    ],
)
def test_an_edited_report_names_the_field(folder: Path, field: str) -> None:
    file = folder / "report.json"
    content = json.loads(file.read_text())
    without(content, field)
    file.write_text(json.dumps(content))
    assert f"{field!r}" in refused(folder)


@pytest.mark.parametrize("value", ["high", None, True, 95])
def test_facts_of_another_kind_are_named(folder: Path, value: object) -> None:
    file = folder / "report.json"
    content = json.loads(file.read_text())
    content["settings"]["confidence"] = value
    file.write_text(json.dumps(content))
    assert "'settings.confidence'" in refused(folder)


RARE = {
    "source": "nppr", "unbroken": 9, "looked_at": 1, "largest": 1e-7,
    "status": {"found": 0, "below": 1, "out of calls": 0},
}  # fmt: skip
PRECISION = {
    "asked": 0.05, "reached": True, "rounds": [[60, 32]], "available_inputs": 60,
    "widths": {"nppr": {"half_width": 0.03}},
}  # fmt: skip


@pytest.mark.parametrize(
    "field",
    [
        "classifier.weights",
        "data.class_names",
        "data.inputs.select",
        "timing.seconds.clean",
        "seed",
        "settings.quantise",
        "settings.fit.family",
        "settings.fit.family.dependency",
        "settings.sources.0",
        "distributions.0.fit",
        "distributions.0.fit.with_references",
        "distributions.0.fit.select_value",
        "distributions.0.fit.stages.0",
        "distributions.0.fit.stages.0.floor",
        "distributions.0.fit.fit_calls",
        "distributions.0.fit_seeds",
        "distributions.1.family.dependency",
        "rare.0.status.below",
        "rare.0.largest",
        "precision.rounds.0.1",
        "precision.widths.nppr.half_width",
        "results",
        "results.0.low",
        "results.0.claim",
        "results.0.method",
    ],
)
def test_what_a_page_needs_is_named(folder: Path, field: str) -> None:
    file = folder / "report.json"
    text = json.dumps({**json.loads(file.read_text()), "rare": [RARE], "precision": PRECISION})
    file.write_text(text)
    read_run(folder)
    inner = content = json.loads(text)
    *parents, last = field.split(".")
    for name in parents:
        inner = inner[int(name) if isinstance(inner, list) else name]
    if parents and parents[0] == "results":
        inner[last] = None
    else:
        wrong: Any = {"seed": -1, "results": [], "fit_seeds": 3, "class_names": 3}.get(
            last, ["oops"]
        )
        inner[int(last) if isinstance(inner, list) else last] = wrong
    file.write_text(json.dumps(content))
    assert f"{field}" in refused(folder)


def test_cut_inputs_are_noticed(folder: Path) -> None:
    file = folder / "per_input.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(lines[:100]))
    assert "'gaussian' has 99 lines of 99 inputs, not 120" in refused(folder)
    file.write_text("\n".join([*lines[:60], *lines[120:]]))
    assert "not 120" in refused(folder)
    file.write_text("\n".join([*lines[:100], lines[100][:12]]))
    assert "line 101: 9 cells expected, got" in refused(folder)
    file.write_text("\n".join([*lines[:121], *lines[122:], lines[122]]))
    assert "'uniform' has 120 lines of 119 inputs, not 120" in refused(folder)


def test_inputs_of_other_numbers_are_noticed(folder: Path) -> None:
    file = folder / "per_input.csv"
    lines = file.read_text().splitlines()
    cells = lines[1].split(",")
    assert (cells[3], cells[4]) == ("gaussian", "20")
    file.write_text("\n".join([lines[0], ",".join([*cells[:5], "21", *cells[6:]]), *lines[2:]]))
    assert "line 2 'right' is 21, not in [0, 20]" in refused(folder)
    other = "7" if cells[5] != "7" else "8"
    file.write_text("\n".join([lines[0], ",".join([*cells[:5], other, *cells[6:]]), *lines[2:]]))
    assert "line 2 'rate' is not 'right' / 'draws'" in refused(folder)
    rate = f"{int(other) / 20:.6g}"
    file.write_text(
        "\n".join([lines[0], ",".join([*cells[:5], other, rate, *cells[7:]]), *lines[2:]])
    )
    assert "the PR of 'gaussian' is" in refused(folder)


def test_damaged_inputs_name_the_line(folder: Path) -> None:
    file = folder / "per_input.csv"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:4], "1,2"]))
    assert "line 5" in refused(folder)
    cells = lines[3].split(",")
    file.write_text("\n".join([*lines[:3], ",".join([*cells[:6], "1.5", *cells[7:]])]))
    assert "line 4 'rate' is 1.5, not in [0, 1]" in refused(folder)
    file.write_text("\n".join([*lines[:3], ",".join([cells[0], "10", *cells[2:]])]))
    assert "'label' is 10, not in [0, 9]" in refused(folder)
    file.write_text("\n".join([*lines[:3], ",".join([*cells[:6], "nan", *cells[7:]])]))
    assert "'rate' is nan" in refused(folder)


def test_damaged_pictures_are_told(folder: Path) -> None:
    file = folder / "evidence.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    assert "Remove the file" in refused(folder)
    worst = made_evidence().worst[0]
    write_evidence(folder, Evidence((replace(worst, labels=worst.labels[:2]),)))
    assert "'labels' of 'pgd' has not 8 entries" in refused(folder)
    write_evidence(folder, Evidence((replace(worst, delta=torch.zeros(8, 3, 2, 2)),)))
    assert "'delta' of 'pgd' are no images" in refused(folder)
    write_evidence(folder, Evidence((replace(worst, labels=worst.labels.float()),)))
    assert "'labels' of 'pgd' are no whole numbers" in refused(folder)
    whole = replace(made_draws(), weights=torch.ones(2, 3, dtype=torch.int64))
    write_evidence(folder, Evidence((), (whole,)))
    assert "'weights' of 'nppr' are no real numbers" in refused(folder)
    write_evidence(folder, Evidence((), (made_draws(),)))
    assert read_run(folder).evidence is not None
