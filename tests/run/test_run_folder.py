"""The folder of a run: what may be taken, resumed and overwritten, and what is never removed."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nppr.errors import RunFolderError, VanishedError
from nppr.measuring.blocks import Blocks
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.run.assess import assess
from nppr.run.run_folder import Division, RunFolder, read_specs
from nppr.search.search_settings import default_settings
from nppr.settings import Measure, Run
from nppr.system.manifest import Manifest

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
    folder.place("report.json").write_text("{}")
    for resume in (False, True):
        with pytest.raises(RunFolderError, match="another draws, seed"):
            begin(tmp_path, resume=resume, seed=2, draws=20)
    assert folder.report_path.exists()
    begin(tmp_path, overwrite=True, seed=2)
    assert not folder.report_path.exists()


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    folder = begin(tmp_path)
    names = (
        "notes.txt", "table.csv", "report.html", "x.partial", "blocks/notes.txt",
        "blocks/mine.safetensors", "figures/plot.png", "figures/plot.svg.partial",
        "fit/model.safetensors", "rare/mine.safetensors", "distributions/nppr_mine.json",
    )  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("precious")
    folder.place("figures/ours.svg").write_text("ours")
    folder.place("fit/0.state.safetensors.partial").write_text("ours")
    begin(tmp_path, overwrite=True)
    begin(tmp_path, overwrite=True)
    assert {name: (tmp_path / name).read_text() for name in names} == dict.fromkeys(
        names, "precious"
    )
    assert [path.name for path in (tmp_path / "figures").glob("ours*")] == []
    assert [path.name for path in (tmp_path / "fit").glob("0*")] == []


@pytest.mark.parametrize("name", ["report.json", "notes.txt", "figures/plot.png", "manifest.json"])
@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_not_of_a_run_is_refused(
    tmp_path: Path, name: str, resume: bool, overwrite: bool
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious")
    first = name.split("/")[0]
    with pytest.raises(RunFolderError, match=rf"holds {first} and no run\.json") as caught:
        begin(tmp_path, resume=resume, overwrite=overwrite)
    assert "\n" not in str(caught.value)
    assert (tmp_path / name).read_text() == "precious"
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_an_empty_or_a_missing_folder_is_taken(tmp_path: Path, overwrite: bool) -> None:
    begin(tmp_path / "new" / "run", overwrite=overwrite)
    (tmp_path / "empty").mkdir()
    begin(tmp_path / "empty", overwrite=overwrite)


def test_a_run_that_was_killed_while_it_began_can_begin_again(tmp_path: Path) -> None:
    Manifest(tmp_path, "run").begin()
    (tmp_path / "run.json.0123abcd.partial").write_text('{"format')
    begin(tmp_path)


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    models, out = tmp_path / "models", tmp_path / "run"
    models.mkdir()
    (models / "a.safetensors").write_text("precious")
    (models / "report.html").write_text("precious")
    folder = begin(out)
    folder.place("fit/a.safetensors")
    folder.place("report.html").symlink_to(models / "report.html")
    (out / "fit").symlink_to(models)  # a folder of the run that became a link later
    (out / "figures").symlink_to(models)  # a link from the beginning
    folder.place("figures/a.safetensors")
    folder.manifest.add(out / "figures" / ".." / "models" / "a.safetensors")
    begin(out, overwrite=True)
    assert sorted(path.read_text() for path in models.iterdir()) == ["precious"] * 2
    assert not (out / "report.html").is_symlink()
    assert (out / "fit").is_symlink()


def test_a_run_json_that_is_a_link_is_not_ours(tmp_path: Path) -> None:
    begin(tmp_path / "a").place("report.json").write_text("kept")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").symlink_to(tmp_path / "a" / "run.json")
    with pytest.raises(RunFolderError, match="it is a link"):
        begin(tmp_path / "b", overwrite=True)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "[]",
        '{"files": ["notes.txt"]}',
        '{"nppr": "study", "format": 1, "files": ["notes.txt"]}',
        '{"nppr": "run", "format": 2, "files": ["notes.txt"]}',
        '{"nppr": "run", "format": 1, "files": "notes.txt"}',
        '{"nppr": "run", "format": 1, "files": ["notes.txt", "../out.txt"]}',
        '{"nppr": "run", "format": 1, "files": ["notes.txt", "a/../../out.txt"]}',
        '{"nppr": "run", "format": 1, "files": ["notes.txt", "/etc/x"]}',
        '{"nppr": "run", "format": 1, "files": ["notes.txt", "c:\\\\x"]}',
        '{"nppr": "run", "format": 1, "files": ["notes.txt", 1]}',
        '{"nppr": "run", "format": 1, "files": ["notes.txt", "\\ud800"]}',
    ],
    ids=lambda text: str(text)[-20:],
)
def test_without_a_manifest_of_ours_nothing_is_removed(tmp_path: Path, text: str | None) -> None:
    out = tmp_path / "run"
    folder = begin(out)
    folder.store("a").path.write_text("kept")
    for path in (out / "notes.txt", tmp_path / "out.txt"):
        path.write_text("precious")
    (out / "manifest.json").unlink()
    if text is not None:
        (out / "manifest.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"must hold a manifest\.json") as caught:
        begin(out, overwrite=True)
    assert "\n" not in str(caught.value)
    assert (out / "notes.txt").read_text() == (tmp_path / "out.txt").read_text() == "precious"
    assert (out / "run.json").exists()
    assert next((out / "blocks").iterdir()).read_text() == "kept"


def test_a_folder_in_the_place_of_a_listed_file_is_left(tmp_path: Path) -> None:
    (begin(tmp_path).place("report.html") / "mine").mkdir(parents=True)
    begin(tmp_path, overwrite=True)
    assert (tmp_path / "report.html" / "mine").is_dir()


@pytest.mark.slow
def test_every_file_of_a_run_is_listed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    family = Family(Dependency.LABEL)
    search = default_settings(family, calls=256, inputs=32).without_positions()
    assess(
        sources="uniform,nppr",
        search=search,
        measure=Measure(draws=16, inputs=30, fit_inputs=64, select_inputs=40, rare_calls=20_000),
        run=Run(out=out),
    )
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    kinds = {name.split("/")[0] for name in found}
    assert {"blocks", "fit", "rare", "distributions", "per_input.csv", "rare.csv"} <= kinds
    (out / "rare" / "mine.safetensors").write_text("precious")
    listed = set(json.loads((out / "manifest.json").read_text())["files"])
    assert found - listed == {"lock", "run.json", "manifest.json"}
    begin(out, overwrite=True).close()
    left = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert left == {"lock", "run.json", "manifest.json", "rare/mine.safetensors"}


def test_blocks_know_their_run(tmp_path: Path) -> None:
    first, second = begin(tmp_path / "a"), begin(tmp_path / "b", seed=2)
    assert first.store("x").identity != second.store("x").identity
    assert first.store("x").identity != first.store("y").identity


def test_a_finished_run_can_be_repeated(tmp_path: Path) -> None:
    begin(tmp_path).place("report.json").write_text("{}")
    begin(tmp_path)
    assert not (tmp_path / "report.json").exists()


def test_the_division_is_remembered(tmp_path: Path) -> None:
    assert RunFolder.division(tmp_path) == Division()
    division = Division(48, ("folded",), 1)
    RunFolder.open(tmp_path, SETTINGS, division)
    assert RunFolder.division(tmp_path) == division
    begin(tmp_path, resume=True)
    assert RunFolder.division(tmp_path) == division


@pytest.mark.parametrize("held", [{}, {"form": None}, {"form": ["a"], "other": 1}])
def test_a_division_that_nobody_wrote_is_named(tmp_path: Path, held: dict[str, object]) -> None:
    begin(tmp_path).note("division", held)
    with pytest.raises(RunFolderError, match="`run` must have a readable division"):
        RunFolder.division(tmp_path)


def test_folders_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(RunFolderError, match="must be a folder that can be written"):
        begin(file / "run")
    with pytest.raises(RunFolderError, match="must be a folder"):
        begin(file)


@pytest.mark.parametrize(
    "text",
    ["[]", '{"format": 99}', '{"format": 1}'],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_run_json_of_something_else_is_named_and_allows_nothing(
    tmp_path: Path, text: str, overwrite: bool
) -> None:
    begin(tmp_path).place("report.json").write_text("kept")
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(
        RunFolderError, match=r"`out` must hold.*delete this one yourself"
    ) as caught:
        begin(tmp_path, overwrite=overwrite)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "report.json").read_text() == "kept"
    assert (tmp_path / "run.json").read_text() == text


DAMAGE = ["", "\0" * 300, '{"format": 1, "sett', "[" * 100_000]
damaged = pytest.mark.parametrize("text", DAMAGE, ids=["empty", "zeros", "cut", "nested"])


def keep(folder: RunFolder, source: str) -> Path:
    """Keep blocks of a source, as a measurement does."""
    store = folder.store(source)
    store.save(Blocks.none(3), now=True)
    return store.path


@damaged
def test_a_damaged_run_json_costs_nothing_that_is_finished(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = begin(tmp_path)
    path = keep(folder, "a")
    whole = (tmp_path / "run.json").read_text()
    before = path.read_bytes()
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunFolderError, match="Add --resume to continue its run, or --overwrite"):
        begin(tmp_path)
    assert (tmp_path / "run.json").read_text() == text
    begin(tmp_path, resume=True)
    assert caplog.messages == [f"{tmp_path / 'run.json'} is damaged: it is written again"]
    assert path.read_bytes() == before
    assert (tmp_path / "run.json").read_text() == whole
    (tmp_path / "run.json").write_text(text)
    begin(tmp_path, overwrite=True, seed=2)
    assert not path.exists()
    with pytest.raises(RunFolderError, match="another seed"):
        begin(tmp_path, resume=True)


def test_a_damaged_run_json_does_not_let_another_run_in(tmp_path: Path) -> None:
    path = keep(begin(tmp_path), "a")
    (tmp_path / "run.json").write_text("")
    for other in (1, 2):
        with pytest.raises(RunFolderError, match="`resume` must find files of this run"):
            begin(tmp_path, resume=True, seed=5, draws=other)
    assert path.exists()
    begin(tmp_path, resume=True).place("report.json").write_text("kept")
    path.unlink()
    (tmp_path / "run.json").write_text("")
    with pytest.raises(RunFolderError, match="of another run or of none"):
        begin(tmp_path, resume=True)
    assert (tmp_path / "report.json").read_text() == "kept"


@damaged
def test_a_damaged_manifest_neither_stops_a_run_nor_gives_up_foreign_files(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = begin(tmp_path)
    path = keep(folder, "a")
    folder.place("report.json").write_text("{}")
    foreign = ("notes.txt", "report.html", "blocks/mine.safetensors", "fit/model.safetensors")
    for name in foreign:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("precious")
    (tmp_path / "manifest.json").write_text(text)
    before = path.read_bytes()
    again = begin(tmp_path, resume=True)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{tmp_path / 'manifest.json'} is damaged")
    assert path.read_bytes() == before
    assert again.store("a").load(3) is not None
    (tmp_path / "manifest.json").write_text(text)
    begin(tmp_path, overwrite=True, seed=2)
    assert not path.exists()
    assert not folder.report_path.exists()
    assert [(tmp_path / name).read_text() for name in foreign] == ["precious"] * 4


@pytest.mark.parametrize("choice", ["resume", "overwrite"])
def test_a_run_whose_lists_are_both_damaged_is_known_by_its_blocks(
    tmp_path: Path, choice: str
) -> None:
    path = keep(begin(tmp_path), "a")
    for name in ("run.json", "manifest.json"):
        (tmp_path / name).write_text("{")
    begin(tmp_path, resume=choice == "resume", overwrite=choice == "overwrite")
    assert path.exists() == (choice == "resume")


@pytest.mark.parametrize("choice", ["resume", "overwrite"])
@pytest.mark.parametrize("content", ["", "{"], ids=["blank", "cut"])
def test_a_foreign_folder_with_a_damaged_run_json_stays_as_it_is(
    tmp_path: Path, choice: str, content: str
) -> None:
    (tmp_path / "run.json").write_text(content)
    (tmp_path / "manifest.json").write_text(content)
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks" / "mine.safetensors").write_text("precious")
    with pytest.raises(RunFolderError, match="delete this one yourself"):
        begin(tmp_path, resume=choice == "resume", overwrite=choice == "overwrite")
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "blocks", "manifest.json", "mine.safetensors", "run.json",
    ]  # fmt: skip
    assert (tmp_path / "run.json").read_text() == content


@pytest.mark.parametrize("choice", ["resume", "overwrite"])
def test_a_folder_in_which_a_run_had_hardly_begun_is_taken(tmp_path: Path, choice: str) -> None:
    for name in ("run.json", "manifest.json", "lock"):
        (tmp_path / name).write_text("")
    begin(tmp_path, resume=choice == "resume", overwrite=choice == "overwrite")
    assert json.loads((tmp_path / "run.json").read_text())["settings"]["seed"] == 1


def test_what_determines_nothing_is_not_needed_of_a_damaged_run_json(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "run.json").write_text("")
    assert RunFolder.division(tmp_path) == Division()
    assert read_specs(tmp_path) == {}


def test_stores_of_different_sources_are_different_files(tmp_path: Path) -> None:
    folder = begin(tmp_path)
    names = ["pgd:steps=1", "pgd:step=1", "pgd", "PGD", "a/b", "a:b", "x" * 200]
    assert len({folder.store(name).path for name in names}) == len(names)
    assert all(folder.store(name).path.parent == tmp_path / "blocks" for name in names)


def test_per_input_csv_has_a_line_for_every_input_and_source(tmp_path: Path) -> None:
    report = assess(
        sources="uniform,pgd:steps=2",
        measure=Measure(inputs=30, draws=8),
        run=Run(out=tmp_path / "run"),
    )
    with (tmp_path / "run" / "per_input.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    noise = [row for row in rows if row["source"] == "uniform"]
    clean = [row for row in noise if row["clean_correct"] == "1"]
    mean = sum(int(row["correct"]) / int(row["draws"]) for row in clean) / len(clean)
    headline = next(row for row in report.numbers if row.source == "uniform")
    assert mean == pytest.approx(headline.value)
    for row in rows:
        assert float(row["low"]) <= float(row["rate"]) <= float(row["high"])
    assert json.loads((tmp_path / "run" / "report.json").read_text())["seed"] == 0


@pytest.mark.slow
def test_a_folder_in_which_another_process_works_is_refused(tmp_path: Path) -> None:
    folder = begin(tmp_path)
    code = """
import sys
from nppr.run.run_folder import RunFolder
from nppr.errors import RunFolderError, VanishedError
try:
    RunFolder.open(sys.argv[1], {}, resume=True).close()
except RunFolderError as error:
    print(error)
"""
    ask = [sys.executable, "-c", code, str(tmp_path)]
    busy = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert busy.startswith("`out` must be a folder that no other process works in")
    assert busy.count("\n") == 1
    folder.close()
    free = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert "holds one with another draws" in free


@pytest.mark.slow
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = """
import os, sys
from nppr.run.run_folder import RunFolder
folder = RunFolder.open(sys.argv[1], {})
print(folder.lock.is_locked, flush=True)
os.kill(os.getpid(), 9)
"""
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert killed.stdout == "True\n"
    assert killed.returncode == -9
    RunFolder.open(tmp_path, {}, resume=True).close()


def test_a_folder_that_is_taken_twice_is_free_after_the_second_close(tmp_path: Path) -> None:
    outer, inner = begin(tmp_path), begin(tmp_path, resume=True)
    assert outer.lock is not None
    inner.close()
    assert outer.lock.is_locked
    outer.close()
    assert not outer.lock.is_locked


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    begin(tmp_path / "run").close()
    (tmp_path / "run" / "lock").unlink()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(RunFolderError, match="can be written"):
        begin(tmp_path / "run", overwrite=True)
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_folder_that_vanishes_stops_the_run(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    for work in (lambda: folder.store("a"), lambda: folder.note("a", 1)):
        with pytest.raises(VanishedError, match=r"vanished. Run it again"):
            work()
    assert not (tmp_path / "run").exists()


def test_what_interrupted_writes_left_is_removed_on_resuming(tmp_path: Path) -> None:
    folder = begin(tmp_path)
    path = folder.place("blocks/a.safetensors")
    left = [path.with_name(path.name + ".0123abcd.partial"), tmp_path / "run.json.0123abcd.partial"]
    others = [tmp_path / "notes.txt.0123abcd.partial", path.with_name(path.name + ".mine.partial")]
    for each in (*left, *others):
        each.write_text("{")
    begin(tmp_path, resume=True)
    assert [each.exists() for each in (*left, *others)] == [False, False, True, True]


def test_a_first_manifest_that_was_never_whole_does_not_make_a_folder_foreign(
    tmp_path: Path,
) -> None:
    (tmp_path / "manifest.json.0123abcd.partial").write_text("{")
    manifest = Manifest(tmp_path, "study")
    manifest.require_ours()
    manifest.replace(tmp_path / "study.json")
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RunFolderError, match="holds other files"):
        manifest.require_ours()
