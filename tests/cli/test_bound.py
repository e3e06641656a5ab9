"""`nppr bound`: the table, its numbers as JSON, the run folder, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nppr.cli import run

QUICK = [
    "bound",
    "--no-page",
    "--inputs",
    "40",
    "--draws",
    "20",
    "--eps",
    "0.3",
    "--batch-size",
    "64",
]
NAMES = ["density_ratio", "draws", "test_set", "population", "estimate"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(arguments: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run([*QUICK, *arguments.split(), "--json", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found: list[dict[str, Any]] = json.loads(printed.out)
    return found


def rows(folder: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path(folder, "report.json").read_text())["results"]
    return found


def test_json_has_an_entry_for_every_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    entries = asked("--out b", capsys)
    assert [entry["density_ratio"] for entry in entries] == [1, 2, 5, 10]
    for entry in entries:
        assert list(entry) == NAMES
        assert entry["draws"] == 20
        assert min(entry["test_set"], entry["population"]) >= 0
        assert max(entry["test_set"], entry["population"]) <= entry["estimate"] <= 1
    for name in NAMES[2:]:
        values = [entry[name] for entry in entries]
        assert values == sorted(values, reverse=True)
    assert entries[0]["estimate"] > entries[-1]["estimate"]


def test_the_run_folder_has_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    entries = asked("--density-ratio 1,2.5 --reference gaussian --out b", capsys)
    found = [row for row in rows("b") if row["source"] != "clean"]
    name = "bound:reference=gaussian:ratio=1+2.5"
    assert [row["source"] for row in found] == [f"{name}:c=1"] * 3 + [f"{name}:c=2.5"] * 3
    assert [row["direction"] for row in found] == ["lower bound", "lower bound", "estimate"] * 2
    claims = ["this test set", "the population", "the population"]
    assert [row["claim"] for row in found] == claims * 2
    assert [row["value"] for row in found] == [
        entry[name] for entry in entries for name in NAMES[2:]
    ]


def test_a_ratio_of_1_is_pr_under_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    (entry,) = asked("--density-ratio 1 --reference laplace --out b", capsys)
    assert run(["assess", *QUICK[1:], "--sources", "laplace", "--out", "a", "--quiet"]) == 0
    pr = next(row["value"] for row in rows("a") if row["metric"] == "PR")
    assert entry["estimate"] == pytest.approx(pr, abs=1e-12)
    assert pr < 1


def test_the_table_shows_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    entries = asked("--out b", capsys)
    assert run([*QUICK, "--out", "b", "--resume"]) == 0
    printed = capsys.readouterr()
    assert "this test set, at least %" in printed.out
    assert "the population, at least %" in printed.out
    lines = [line.split() for line in printed.out.splitlines()]
    for entry in entries:
        shares = [f"{100 * entry[name]:.1f}" for name in NAMES[2:]]
        assert [f"{entry['density_ratio']:g}", *shares] in lines
    assert "of uniform noise; the bounds of a column hold together, 95 % confidence" in " ".join(
        printed.out.split()
    )
    assert printed.out.splitlines()[-1] == "b/report.json"


def test_quiet_prints_the_path_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--out", "b", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("b/report.json\n", "")


def test_a_seed_gives_the_same_numbers_whatever_the_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = asked("--batch-size 3 --out a", capsys)
    assert first == asked("--batch-size 64 --out b", capsys)
    assert first != asked("--seed 1 --out c", capsys)


def test_assess_has_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    asked("--density-ratio 2 --out b", capsys)
    assert run(["assess", *QUICK[1:], "--sources", "bound:ratio=2", "--out", "a", "--quiet"]) == 0
    assert rows("a") == rows("b")


BAD = {
    "--reference unifrm": "`reference` must be one of gaussian, laplace, uniform",
    "--reference pgd": "`reference` must be one of gaussian, laplace, uniform",
    "--density-ratio 0.5": "`density-ratio` must hold numbers from 1",
    "--density-ratio 2,0.9": "`density-ratio` must hold numbers from 1",
    "--density-ratio 2,2.0": "`density-ratio` must name every ratio once",
    "--density-ratio two": "`density-ratio` must hold numbers from 1",
    "--density-ratio 1,,2": "`density-ratio` must hold numbers from 1",
    "--density-ratio 1:2": "`density-ratio`",
    "--density-ratio inf": "`density-ratio` must hold numbers from 1",
    "--draws 0": "`draws`",
    "--inputs 0": "`inputs`",
    "--confidence 1": "`confidence` must lie in (0, 1)",
    "--confidence 0.5": "`confidence` must be at least 0.75",
    "--eps 8": "`radius` must be at most 1",
    "--sources uniform": "sources",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_one_clear_line(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--quiet", *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert BAD[arguments] in printed.err


def test_a_failure_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from nppr.sources import Bound

    def broken(*_: object) -> None:
        raise ValueError("this source is broken")

    monkeypatch.setattr(Bound, "perturb", broken)
    assert run([*QUICK, "--out", "b"]) == 1
    assert "failed: this source is broken" in capsys.readouterr().err
