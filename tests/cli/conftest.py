from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nppr.cli import run

Refused = Callable[[Sequence[str]], str]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Run a command that must be refused with one line and exit code 2; the line."""

    def read_error(words: Sequence[str]) -> str:
        assert run(list(words)) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("error: ")
        assert printed.err.count("\n") == 1
        return printed.err

    return read_error


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with noise that few calls have learned, for the floors 0 and 0.5."""
    folder = tmp_path_factory.mktemp("learned") / "fit"
    words = ["--floor", "0,0.5", "--fit-calls", "768", "--fit-inputs", "64"]
    words += ["--select-inputs", "20"]
    assert run(["fit", "--components", "2", *words, "--quiet", "--out", str(folder)]) == 0
    return folder
