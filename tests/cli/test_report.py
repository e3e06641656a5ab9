"""`nppr report`: the page, tables and figures of a run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nppr.cli import run
from report.page.made_runs import made_evidence, made_report, write_run

FILES = ("report.json", "per_input.csv", "evidence.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", *made_report(), made_evidence())


def test_the_page_is_written_into_the_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {name: (folder / name).read_bytes() for name in FILES}
    (folder / "report.html").write_text("old")
    assert run(["report", str(folder)]) == 0
    page = folder / "report.html"
    assert capsys.readouterr().out == f"{page}\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert {name: (folder / name).read_bytes() for name in FILES} == before
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, "report.html"])


def test_figures_are_written_beside_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.parent / "elsewhere" / "page.html"
    assert run(["report", str(folder), "--out", str(out), "--figures", "svg,png"]) == 0
    assert out.exists()
    assert not (folder / "report.html").exists()
    written = {path.suffix for path in (folder / "figures").iterdir()}
    assert written == {".svg", ".png"}
    assert "figures in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "start"),
    [("md", "| metric |"), ("csv", "metric,source,"), ("latex", r"\begin{table}")],
)
def test_tables_are_printed(
    folder: Path, form: str, start: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(folder), "--format", form]) == 0
    assert capsys.readouterr().out.startswith(start)
    assert not (folder / "report.html").exists()


def test_the_lines_of_the_inputs_as_parquet(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(["report", str(folder), "--format", "parquet"]) == 0
    path = folder / "per_input.parquet"
    assert capsys.readouterr().out == f"{path}\n"
    lines = (folder / "per_input.csv").read_text().splitlines()
    assert parquet.read_table(path).num_rows == len(lines) - 1


def test_a_table_is_written_where_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "table.json"
    assert run(["report", str(folder), "--format", "json", "--out", str(out), "--quiet"]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert "nppr" in {row["source"] for row in json.loads(out.read_text())}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "pdf"], "`format`"),
        (["--figures", "gif"], "`figures`"),
        (["--figures", ""], "`figures`"),
        (["--out", "/dev/null/x"], "`out`"),
    ],
)
def test_bad_options_are_one_line(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(folder), *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert not (folder / "report.html").exists()


def test_a_bad_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path / "nothing")]) == 2
    assert "`run` must be the folder of a run" in capsys.readouterr().err


def test_what_no_check_foresaw_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nppr.report.folder.check_facts", lambda *_: None)
    file = folder / "report.json"
    content = json.loads(file.read_text())
    for field in ("budget", "timing", "grade"):
        file.write_text(json.dumps({**content, field: {}}))
        assert run(["report", str(folder)]) == 2
        printed = capsys.readouterr().err
        assert "`run` must hold the files that nppr has written" in printed
        assert "Traceback" not in printed


def test_a_run_writes_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["assess", "--inputs", "30", "--draws", "8", "--sources", "uniform,pgd:steps=2"]
    assert run([*words, "--out", "a", "--figures", "svg"]) == 0
    assert "page: a/report.html" in capsys.readouterr().err
    page = (tmp_path / "a" / "report.html").read_text()
    assert "Robustness of digits-cnn on digits" in page
    assert list((tmp_path / "a" / "figures").glob("*.svg"))
    assert run(["report", "a", "--out", "again.html"]) == 0
    assert (tmp_path / "again.html").read_text() == page
    assert run([*words, "--out", "b", "--figures", "gif"]) == 2
    assert "`figures`" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


def test_a_page_that_cannot_be_rendered_costs_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "figures").write_text("in the way")
    words = ["assess", "--inputs", "20", "--draws", "4", "--sources", "uniform", "--out", "a"]
    assert run([*words, "--no-page", "--figures", "svg", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "a/report.json\n"
    assert "the page could not be rendered" in printed.err
    assert (tmp_path / "a" / "report.json").exists()
