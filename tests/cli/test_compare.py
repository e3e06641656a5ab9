"""`nppr compare`: real runs, the files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from nppr import console
from nppr import assess
from nppr.budget import Budget
from nppr.cli.report_commands import compare
from nppr.errors import NpprError


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The demo with two budgets, one of them with two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    made = []
    for name, eps, seed in (("small0", "0.1", 0), ("small1", "0.1", 1), ("large0", "0.4", 0)):
        assess(
            out=folder / name,
            draws=8,
            sources="uniform,pgd:steps=3",
            budget=Budget.linf(eps),
            seed=seed,
        )
        made.append(folder / name)
    return made


def run(arguments: list[str]) -> int:
    app = typer.Typer()
    app.command()(compare)
    try:
        app(args=arguments, standalone_mode=False)
    except NpprError as error:
        console.show_error(str(error))
        return 2
    return 0


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_seeds_and_budgets_side_by_side(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*map(str, runs), "--out", "found"]) == 0
    printed = capsys.readouterr().out
    content = json.loads(Path("found/compare.json").read_text())
    assert [len(entry["runs"]) for entry in content["entries"]] == [2, 1]
    assert content["paired"]
    assert "A: digits-cnn, linf 0.1" in " ".join(printed.split())
    for name in ("html", "md", "csv", "tex", "json"):
        assert f"found/compare.{name}" in printed
        assert Path(f"found/compare.{name}").stat().st_size > 500
    sources = {(row["metric"], row["source"]) for row in content["results"]}
    assert {("AR", "merged"), ("PR", "uniform"), ("accuracy", "clean")} <= sources
    merged = next(row for row in content["results"] if row["source"] == "merged")
    assert merged["differences"][0]["separated"]


def test_quiet_prints_the_path_of_the_truth(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*map(str, runs[1:]), "--quiet", "--format", "md"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.name == "compare.json"
    assert path.parent.parent == Path("runs")
    assert sorted(file.name for file in path.parent.iterdir()) == ["compare.json", "compare.md"]
    assert run([*map(str, runs[1:]), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "two or more run folders, got 0"),
        ("{0}", "two or more run folders, got 1"),
        ("{0} {0}", "twice"),
        ("{0} nothing", "does not exist"),
        ("{0} {1} --format pdf", "`format` must be one of"),
        ("{0} {2} --confidence 1.5", "`confidence`"),
    ],
    ids=["none", "one", "twice", "missing", "format", "confidence"],
)
def test_bad_input_is_one_line(
    runs: list[Path], arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.format(*runs).split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_another_comparison_in_the_folder_is_refused(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*map(str, runs), "--out", "found", "--quiet"]) == 0
    again = [*map(str, runs[1:]), "--out", "found", "--quiet"]
    assert run(again) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run([*again, "--overwrite"]) == 0
