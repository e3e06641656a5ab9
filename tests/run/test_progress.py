from __future__ import annotations

import io

import pytest
from rich.console import Console

import nppr
from helpers import grouped
from nppr.core.tally import Progress
from nppr.run import progress
from nppr.search.fitting import FitProgress


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is printed to standard error, which is no terminal."""
    text = io.StringIO()
    monkeypatch.setattr(progress, "err", Console(file=text, width=200))
    return text


def test_a_log_has_a_line_as_soon_as_a_source_is_complete(written: io.StringIO) -> None:
    with progress.progress_bars(quiet=False) as update:
        assert update is not None
        update(Progress("uniform", 50, 100, 40))
        assert written.getvalue() == ""
        update(Progress("uniform", 100, 100, 90))
        assert written.getvalue() == "uniform: 100/100, 90.0 % correct, 0 s\n"
        update(Progress("uniform", 100, 100, 90))
        update(FitProgress("label", 8, 8, 0.25, 0.5))
        assert written.getvalue().splitlines()[1:] == [
            "fit label: 8/8, loss 0.250, 50.0 % correct, 0 s"
        ]


def test_a_log_shows_a_stage_again_that_begins_again(written: io.StringIO) -> None:
    with progress.progress_bars(quiet=False) as update:
        assert update is not None
        for step in (1, 2, 1, 2):
            update(FitProgress("label", step, 2, 0.0, 1.0))
    assert len(written.getvalue().splitlines()) == 2


def test_a_log_hears_of_what_takes_long(
    written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    with progress.progress_bars(quiet=False) as update:
        assert update is not None
        update(Progress("pgd", 10, 100, 1))
    assert written.getvalue() == "pgd: 10/100, 10.0 % correct, 0 s\n"


def test_the_library_shows_bars_on_a_terminal_only(
    written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def assess(**how: bool) -> None:
        nppr.assess(sources="uniform", **grouped(inputs=10, draws=2, **how))

    assess()
    assert written.getvalue() == ""
    assess(progress=True)
    assert "uniform: 20/20" in written.getvalue()
    drawn = io.StringIO()
    terminal = Console(file=drawn, width=100, force_terminal=True)
    monkeypatch.setattr(progress, "err", terminal)
    assess(progress=False)
    assert drawn.getvalue() == ""
    assess()
    assert "uniform" in drawn.getvalue()
    assert "20/20" in drawn.getvalue()
