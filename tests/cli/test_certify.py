"""`nppr certify`: exit codes, what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nppr
from nppr.cli import run
from nppr.noise import Family
from nppr.search import default_settings

FAST = ["--inputs", "150", "--batch-size", "64"]
PLAIN = ["certify", *FAST, "--quiet"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = run([*PLAIN, *arguments.split(), "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    found: dict[str, Any] = json.loads(printed.out)
    return code, found


@pytest.mark.parametrize(
    ("arguments", "code", "verdict"),
    [
        ("--source uniform --at-least 0.9", 0, "holds"),
        ("--source pgd:steps=3 --eps 1 --at-least 0.9", 1, "violated"),
        ("--source uniform --at-least 0.999", 3, "undecided"),
        ("--source uniform --at-least 0.99 --about test-set --calls 2000", 0, "holds"),
        ("--about test-set --at-least 0.999 --calls 300", 3, "undecided"),
    ],
)
def test_the_exit_code_is_the_verdict(
    arguments: str, code: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(arguments, capsys)
    assert (found[0], found[1]["verdict"]) == (code, verdict)
    assert found[1]["about"] == ("this test set" if "test-set" in arguments else "the population")


def test_two_lines_say_what_was_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", *FAST]) == 0
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()
    assert first == (
        "uniform: holds: under this noise at least 90 % of the answers are right"
        " (95 % confidence, the population, inputs that are right without noise)"
    )
    _, found = asked("", capsys)
    assert second == (
        f"{found['right']} of {found['draws']} draws right ({100 * found['low']:.1f}-100.0 % at every"
        f" look), {found['inputs']} inputs, {found['calls']} calls: the evidence is enough"
    )
    assert list(tmp_path.iterdir()) == []


def test_every_class_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAIN, "--per-class", "--at-least", "0.5"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()[2:]
    assert [line.split(":")[0] for line in lines] == [f"  {name}" for name in "0123456789"]
    assert any(": holds (" in line for line in lines)
    _, found = asked("--per-class --at-least 0.5", capsys)
    assert [each["name"] for each in found["classes"]] == list("0123456789")
    assert sum(each["draws"] for each in found["classes"]) == found["draws"]


def test_the_batch_size_does_not_matter(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (
        asked(f"--eps 0.3 --at-least 0.8 --seed 5 --batch-size {size}", capsys)[1]
        for size in (3, 64)
    )
    assert first == second
    assert first["seed"] == 5


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The options of a distribution that few calls have fitted."""
    folder = tmp_path_factory.mktemp("learned") / "fit"
    fit = default_settings(Family(components=2), calls=512, inputs=64, floors=(0.0,))
    nppr.learn(fit=fit, fit_inputs=64, select_inputs=20, batch_size=64, out=folder)
    return f"--source nppr --distribution {folder}"


def test_learned_noise_is_read_from_its_folder(
    learned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = asked(f"{learned} --at-least 0.2", capsys)
    assert (code, found["source"], found["metric"]) == (0, "nppr", "NPPR")
    assert "the worst distribution found" in found["statement"]
    code, far = asked(f"{learned} --at-least 0.9 --eps 1", capsys)
    assert (code, far["verdict"]) == (1, "violated")
    assert "the worst admissible noise" in far["statement"]


def test_learned_noise_has_the_radii_of_all_noise(
    learned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*PLAIN, *learned.split(), "--eps", "8"]) == 2
    assert "`radius` must be at most 1" in capsys.readouterr().err


BAD = {
    "--source stress": "`source` must be noise, an attack or a corruption",
    "--source bound": "`source` must be noise, an attack or a corruption",
    "--source universal": "`source` must not be universal",
    "--source uniform,gaussian": "`source` must name one source",
    "--source unifrm": "Did you mean 'uniform'",
    "--source nppr": "`distribution` must be given",
    "--source nppr --distribution nowhere": "`distribution` must",
    "--at-least 0": "must lie in (0, 1), got 0",
    "--at-least nan": "must lie in (0, 1), got nan",
    "--at-least much": "at-least",
    "--confidence 1": "`confidence`",
    "--calls 0": "`calls` must be a whole number >= 1, got 0",
    "--about all": "`about` must be one of population, test-set, got 'all'",
    "--about tset-set": "Did you mean 'test-set'",
    "--inputs 0": "`inputs`",
    "--seed -1": "`seed`",
    "--eps 8": "`radius` must be at most 1",
    "--norm l2": "`eps` must be given",
}


@pytest.mark.parametrize("arguments", BAD)
def test_bad_input_is_one_clear_line(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAIN, *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert printed.err.count("\n") == 1
    assert BAD[arguments] in printed.err


@pytest.mark.parametrize("name", ["nppr:floor=0.5", "all"])
def test_what_is_refused_is_not_suggested(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PLAIN, "--source", name]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: `source` must")
    assert f"Did you mean '{name.split(':')[0]}'" not in printed.err


def test_a_distribution_is_not_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    """It belongs to `--source nppr`."""
    assert run([*PLAIN, "--source", "uniform", "--distribution", "nowhere"]) == 2
    assert "`distribution` must" in capsys.readouterr().err
