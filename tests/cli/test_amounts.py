"""How much is measured: `--precision`, `--rare`, `--radii`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nppr.cli import run

QUICK = ["--no-page", "--inputs", "40", "--draws", "16", "--quiet"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_precision_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["assess", "--no-page", "--sources", "uniform", "--precision", "0.02", "--out", "out"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "precision: all PR and NPPR are known to" in printed
    report = json.loads(Path("out/report.json").read_text())
    assert report["precision"]["reached"]
    assert report["settings"]["draws"] == 16
    assert all(width["half_width"] <= 0.02 for width in report["precision"]["widths"].values())


def test_rare_failures_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "assess",
        "--no-page",
        "--sources",
        "gaussian",
        "--inputs",
        "40",
        "--draws",
        "16",
        "--out",
        "out",
    ]
    assert run([*words, "--rare", "--rare-calls", "30000"]) == 0
    printed = capsys.readouterr().out
    assert "gaussian: splitting followed 5 of" in printed
    assert len(Path("out/rare.csv").read_text().splitlines()) == 6
    assert run(["bound", *QUICK[:-1], "--rare", "--rare-calls", "30000", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert all(entry["estimate_with_splitting"] <= entry["estimate"] for entry in entries)


def test_other_radii_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["assess", "--sources", "uniform,pgd:steps=1", "--radii", "0.3", "--out", "out"]
    assert run([*words, "--no-page", "--inputs", "20", "--draws", "4"]) == 0
    printed = capsys.readouterr().out
    assert "at radius 0.3: uniform " in printed
    assert ", pgd:steps=1 " in printed


def test_radii_are_measured_with_the_draws_of_runs_of_their_own() -> None:
    assert run(["assess", "--sources", "gaussian,pgd:steps=2,jpeg", "--radii", "0.05, 0.2",
                "--eps", "0.1", "--out", "all", *QUICK]) == 0  # fmt: skip
    report = json.loads(Path("all/report.json").read_text())
    assert [entry["text"] for entry in report["radii"]] == ["0.05", "0.2"]
    for entry in report["radii"]:
        folder = f"at-{entry['text']}"
        assert run(["assess", "--sources", "gaussian,pgd:steps=2", "--eps", entry["text"],
                    "--out", folder, *QUICK]) == 0  # fmt: skip
        alone = json.loads(Path(folder, "report.json").read_text())
        wanted = [
            row
            for row in alone["results"]
            if row["metric"] in ("PR", "AR") and row["source"] != "merged"
        ]
        assert entry["results"] == wanted


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--rare-calls", "9000"], "`rare-calls` must come with --rare"),
        (["--rare", "--rare-calls", "9"], "`rare-calls` must be a whole number >= 5500, got 9"),
        (["--precision", "0"], "`precision` must lie in (0, 0.5), got 0"),
        (
            ["--precision", "0.01", "--sources", "pgd:steps=1"],
            "`precision` must come with a source",
        ),
        (["--radii", "0.05,x"], "`radii` must be a number"),
        (["--radii", "0.1,1/10"], "`radii` must be different"),
        (["--radii", "0.2", "--only-merged"], "`radii` must come without only-merged"),
        (["--rare", "--rare-calls", "0"], "`rare-calls` must be a whole number >= 5500, got 0"),
        (["--rare", "--sources", "pgd:steps=1"], "`rare` must come with gaussian"),
        (["--radii", "0.05,7"], "`radius` must be at most 1"),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, list) else "line",
)
def test_bad_input_is_one_clear_line(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["assess", "--sources", "uniform", "--inputs", "20", *words]) == 2
    printed = capsys.readouterr()
    assert expected in printed.err
    assert len([line for line in printed.err.splitlines() if line.startswith("error")]) == 1
