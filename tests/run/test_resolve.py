"""Data and classifier enter a run once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nppr
from nppr.cli import check_commands, measure_commands, run  # noqa: F401  they are patched
from nppr.data import Data, load_data
from nppr.models import load_classifier, prepare
from nppr.report import read_run

SEARCH = "--fit-calls 256 --components 2 --dependency label --floor 0 --fit-inputs 60"
LIMITS = "--inputs 40 --select-inputs 40 --draws 2 --batch-size 16"


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the calls of what loads and prepares, wherever it is called."""
    calls: Counter[str] = Counter()

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **given: Any) -> Any:
            calls[real.__name__] += 1
            return real(*args, **given)

        return count

    monkeypatch.setattr(Data, "limit", counting(Data.limit))
    for real in (load_data, load_classifier, prepare):
        replaced = counting(real)
        for name, module in list(sys.modules.items()):
            if name.startswith("nppr.") and getattr(module, real.__name__, None) is real:
                monkeypatch.setattr(module, real.__name__, replaced)
    return calls


ONCE = {"load_data": 1, "load_classifier": 1, "limit": 1, "prepare": 1}


@pytest.fixture(scope="module")
def assessed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[str]]:
    """The folder of a run, and what it called how often."""
    folder = tmp_path_factory.mktemp("assessed") / "run"
    words = f"--sources uniform,nppr,pgd:steps=2 {LIMITS} {SEARCH} --quiet --out {folder}"
    with pytest.MonkeyPatch.context() as patch:
        calls = counted(patch)
        assert run(["assess", *words.split()]) == 0
    return folder, calls


def test_an_assessment_loads_and_prepares_once(assessed: tuple[Path, Counter[str]]) -> None:
    folder, calls = assessed
    assert calls == ONCE
    found = read_run(folder)
    assert found.evidence is not None, "worst inputs were drawn in the form of the search"
    assert found.report.distributions
    assert (folder / "report.html").exists()


@pytest.mark.parametrize("command", ["doctor", "certify", "fit"])
def test_other_commands_load_and_prepare_once(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    calls = counted(monkeypatch)
    more = f"{SEARCH} --quiet --out fitted" if command == "fit" else ""
    assert run([command, "--inputs", "40", *more.split()]) in (0, 3)
    assert calls == ONCE


def test_a_call_of_python_loads_and_prepares_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    nppr.assess(sources="uniform", measure=nppr.Measure(inputs=40, draws=2))
    assert calls == ONCE


def test_the_page_is_that_of_the_files(assessed: tuple[Path, Counter[str]]) -> None:
    """It is made from the report in memory; `nppr report` makes it from the folder."""
    folder, _ = assessed
    page = folder / "report.html"
    written = page.read_text()
    assert 'id="worst"' in written
    assert run(["report", str(folder), "--quiet"]) == 0
    assert page.read_text() == written
