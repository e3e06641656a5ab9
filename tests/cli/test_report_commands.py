"""`nppr report`, `export` and `compare`: pages, tables, figures and documents of run folders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nppr
from nppr.cli import run
from nppr.core.budget import Budget
from nppr.export.documents import Document
from nppr.export.exports import EXPORTS
from report.page.made_runs import made_report

from .conftest import Refused

pytestmark = pytest.mark.slow

FILES = ("report.json", "per_input.csv", "evidence.safetensors")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The demo with two budgets, one of them with two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for name, eps, seed in (("small0", "0.1", 0), ("small1", "0.1", 1), ("large0", "0.4", 0)):
        nppr.assess(
            sources="uniform,pgd:steps=3",
            budget=Budget.linf(eps),
            measure=nppr.Measure(draws=4, seed=seed),
            run=nppr.Run(out=folder / name),
        )
        made.append(folder / name)
    return made


@pytest.fixture
def folder(runs: list[Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs[0], tmp_path / "run"))


def test_the_page_is_written_into_the_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert set(FILES) <= before.keys()
    (folder / "report.html").write_text("old")
    assert run(["report", str(folder)]) == 0
    page = folder / "report.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    after = {name: (folder / name).read_bytes() for name in FILES}
    assert after.items() <= before.items()


def nppr_in(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with these variables of the environment."""
    return subprocess.run(
        [sys.executable, "-m", "nppr", *words],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_table_is_printed_whatever_characters_the_terminal_has(
    folder: Path, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "report.json"
    path.write_text(path.read_text().replace('"digits"', '"digits \u4e2d"'))
    words = ["report", str(folder), "--format", "md"]
    assert run(words) == 0
    printed = capsys.readouterr().out
    assert "≤" in printed
    done = nppr_in(words, PYTHONIOENCODING=encoding)
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout == printed.replace("≤", "<=").replace("≥", ">=").replace("中", r"\u4e2d")


def test_a_backend_that_matplotlib_lacks_is_one_line(folder: Path) -> None:
    done = nppr_in(["report", str(folder)], MPLBACKEND="paper")
    assert done.returncode == 2
    assert done.stderr.startswith("error: `MPLBACKEND` must be a backend of matplotlib")
    assert done.stderr.count("\n") == 1


def test_figures_are_written_beside_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.parent / "elsewhere" / "page.html"
    assert run(["report", str(folder), "--out", str(out), "--figures", "svg,png"]) == 0
    assert out.exists()
    assert not (folder / "report.html").exists()
    assert {path.suffix for path in (folder / "figures").iterdir()} == {".svg", ".png"}
    assert "figures in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "start"),
    [("md", "| metric |"), ("csv", "metric,source,"), ("latex", r"\begin{table}"), ("json", "[")],
)
def test_tables_are_printed_or_written(
    folder: Path, form: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(folder), "--format", form]) == 0
    text = capsys.readouterr().out
    assert text.startswith(start)
    assert not (folder / "report.html").exists()
    assert run(["report", str(folder), "--format", form, "--out", "table", "--quiet"]) == 0
    assert capsys.readouterr().out == "table\n"
    assert Path("table").read_text() == text


def test_the_rows_of_the_inputs_as_parquet(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(["report", str(folder), "--format", "parquet"]) == 0
    path = folder / "per_input.parquet"
    assert capsys.readouterr().out == f"{path}\n"
    lines = (folder / "per_input.csv").read_text().splitlines()
    assert parquet.read_table(path).num_rows == len(lines) - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "pdf"], "`format`"),
        (["--figures", "gif"], "`figures`"),
        (["--figures", ""], "`figures`"),
        (["--out", "/dev/null/x"], "`out`"),
    ],
    ids=str,
)
def test_bad_options_of_report_are_one_line(
    folder: Path, options: list[str], message: str, refused: Refused
) -> None:
    assert message in refused(["report", str(folder), *options])
    assert not (folder / "report.html").exists()


def test_a_folder_without_a_run_is_refused(folder: Path, refused: Refused) -> None:
    assert "`run` must be the folder of a run" in refused(["report", "nothing"])
    file = folder / "report.json"
    content = json.loads(file.read_text())
    for field in ("budget", "timing", "grade"):
        file.write_text(json.dumps({**content, field: {}}))
        assert f"`report` field '{field}" in refused(["report", str(folder)])


def test_seeds_and_budgets_side_by_side(
    runs: list[Path], refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", *map(str, runs), "--out", "found"]
    assert run(words) == 0
    printed = capsys.readouterr().out
    content = json.loads(Path("found/compare.json").read_text())
    assert [len(entry["runs"]) for entry in content["entries"]] == [2, 1]
    assert content["paired"]
    assert "A: digits-cnn, linf 0.1" in " ".join(printed.split())
    for name in ("html", "md", "csv", "tex", "json"):
        assert f"found/compare.{name}" in printed
        assert Path(f"found/compare.{name}").stat().st_size > 500
    merged = next(row for row in content["results"] if row["source"] == "merged")
    assert merged["differences"][0]["separated"]
    other = ["compare", *map(str, runs[1:]), "--out", "found", "--quiet"]
    assert "--overwrite" in refused(other)
    assert run([*other, "--overwrite"]) == 0


def test_quiet_prints_the_path_of_the_json(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", *map(str, runs[1:]), "--quiet", "--format", "md"]
    for _ in range(2):
        assert run(words) == 0
        path = Path(capsys.readouterr().out.strip())
        assert path.name == "compare.json"
        assert path.parent.parent == Path("runs")
        assert {"compare.json", "compare.md"} <= {file.name for file in path.parent.iterdir()}
        assert not (path.parent / "compare.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "two or more run folders, got 0"),
        ("{0}", "two or more run folders, got 1"),
        ("{0} {0}", "twice"),
        ("{0} nothing", "does not exist"),
        ("{0} {1} --format pdf", "`format` must be one of"),
        ("{0} {2} --confidence 1.5", "`confidence`"),
        ("{0} {2} --seed x", "`seed` must be a whole number, got 'x'"),
    ],
)
def test_bad_input_of_compare_is_one_line(
    runs: list[Path], arguments: str, message: str, refused: Refused
) -> None:
    assert message in refused(["compare", *arguments.format(*runs).split()])


def test_an_export_prints_the_paths_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(made_report()[0].to_json())
    out = tmp_path / "filed"
    assert run(["export", str(tmp_path), "--to", "safety-case", "--out", str(out)]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert written == [out / "safety-case.json", out / "safety-case.mmd"]
    assert all(path.is_file() for path in written)


@pytest.mark.parametrize("kind", EXPORTS)
def test_the_command_knows_every_registered_export(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(made_report()[0].to_json())
    assert run(["export", str(tmp_path), "--to", kind]) == 0
    written = [Path(line) for line in capsys.readouterr().out.split()]
    assert written == [tmp_path / "exports" / (kind + suffix) for suffix in EXPORTS[kind].files]
    assert run(["export", "--help"]) == 0
    assert kind in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_a_new_export_needs_no_other_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.json").write_text(made_report()[0].to_json())
    made = EXPORTS.copy()
    made.add("plain", Document({".txt": lambda filed: filed.report.classifier.name}))
    monkeypatch.setattr("nppr.export.exports.EXPORTS", made)
    assert run(["export", str(tmp_path), "--to", "plain"]) == 0
    assert (tmp_path / "exports" / "plain.txt").read_text() == "resnet20"
