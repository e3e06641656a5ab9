import csv
import json
from pathlib import Path

import pytest

from nppr.assess import assess
from nppr.errors import RunFolderError
from nppr.run_folder import RunFolder

SETTINGS = {"seed": 1, "draws": 10, "sources": ("a", "b")}


def begin(
    path: Path, *, resume: bool = False, overwrite: bool = False, **changes: int
) -> RunFolder:
    return RunFolder.open(path, {**SETTINGS, **changes}, resume=resume, overwrite=overwrite)


def test_an_unfinished_run_must_be_resumed_or_overwritten(tmp_path: Path) -> None:
    begin(tmp_path).store("a").path.write_text("kept")
    with pytest.raises(RunFolderError, match="--resume to continue"):
        begin(tmp_path)
    assert begin(tmp_path, resume=True).store("a").path.read_text() == "kept"
    assert not begin(tmp_path, overwrite=True).store("a").path.exists()


def test_a_run_of_other_settings_is_safe(tmp_path: Path) -> None:
    folder = begin(tmp_path)
    folder.report_path.write_text("{}")
    for resume in (False, True):
        with pytest.raises(RunFolderError, match="another draws, seed"):
            begin(tmp_path, resume=resume, seed=2, draws=20)
    assert folder.report_path.exists()
    begin(tmp_path, overwrite=True, seed=2)
    assert not folder.report_path.exists()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks" / "notes.txt").write_text("precious")
    begin(tmp_path, overwrite=True)
    begin(tmp_path, overwrite=True)
    assert (tmp_path / "blocks" / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("name", ["report.json", "per_input.csv", "blocks/a.safetensors"])
@pytest.mark.parametrize("resume", [False, True])
def test_results_without_a_run_are_refused(tmp_path: Path, name: str, resume: bool) -> None:
    (tmp_path / "blocks").mkdir()
    (tmp_path / name).write_text("stale")
    with pytest.raises(RunFolderError, match=f"holds {name} without a run.json"):
        begin(tmp_path, resume=resume)
    begin(tmp_path, overwrite=True)
    assert not (tmp_path / name).exists()


def test_blocks_know_their_run(tmp_path: Path) -> None:
    first, second = begin(tmp_path / "a"), begin(tmp_path / "b", seed=2)
    assert first.store("x").identity != second.store("x").identity
    assert first.store("x").identity != first.store("y").identity


def test_a_finished_run_can_be_repeated(tmp_path: Path) -> None:
    begin(tmp_path).report_path.write_text("{}")
    begin(tmp_path)
    assert not (tmp_path / "report.json").exists()


def test_the_division_is_remembered(tmp_path: Path) -> None:
    assert RunFolder.division(tmp_path) == {}
    begin(tmp_path).record_division({"micro_batch": 48, "form": ["folded"]})
    begin(tmp_path, resume=True)
    assert RunFolder.division(tmp_path) == {"micro_batch": 48, "form": ["folded"]}


def test_folders_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RunFolderError, match="must be a folder that can be written"):
        begin(file / "run")
    with pytest.raises(RunFolderError, match="must be a folder"):
        begin(file)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}'])
def test_a_damaged_run_json_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"`out` must hold.*--overwrite"):
        begin(tmp_path)
    begin(tmp_path, overwrite=True)


def test_stores_of_different_sources_are_different_files(tmp_path: Path) -> None:
    folder = begin(tmp_path)
    names = ["pgd:steps=1", "pgd:step=1", "pgd", "PGD", "a/b", "a:b", "x" * 200]
    assert len({folder.store(name).path for name in names}) == len(names)
    assert all(folder.store(name).path.parent == tmp_path / "blocks" for name in names)


def test_per_input_csv_has_a_line_for_every_input_and_source(tmp_path: Path) -> None:
    report = assess(inputs=30, draws=8, sources="uniform,pgd:steps=2", out=tmp_path / "run")
    with (tmp_path / "run" / "per_input.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    noise = [row for row in rows if row["source"] == "uniform"]
    clean = [row for row in noise if row["clean_correct"] == "1"]
    mean = sum(int(row["right"]) / int(row["draws"]) for row in clean) / len(clean)
    headline = next(row for row in report.results if row.source == "uniform")
    assert mean == pytest.approx(headline.value)
    for row in rows:
        assert float(row["low"]) <= float(row["rate"]) <= float(row["high"])
    assert json.loads((tmp_path / "run" / "report.json").read_text())["seed"] == 0
