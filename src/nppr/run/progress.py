"""Show the progress of a command or a call: bars on a terminal, lines in a pipe or a log.

Everything goes to standard error, so that standard output can be piped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBars

# Without emoji: `nppr:label:floor=0.5` is a name and holds no picture.
err = Console(stderr=True, highlight=False, emoji=False)

SECONDS_BETWEEN_LINES = 30.0
"""Between two lines of something that is still under way."""

ShowProgress = Callable[[Any], None]
"""Called with a `Plan`, and with the `FitProgress`, `Progress` and `TrainProgress` of the work."""


@dataclass(frozen=True)
class Plan:
    """Plan of a run, shown before it begins."""

    inputs: int
    fit_inputs: int
    select_inputs: int
    sources: tuple[str, ...]
    micro_batch: int
    form: tuple[str, ...]
    seconds: float
    """Estimated seconds of the whole run, including preparation."""
    warning: str | None = None
    finished: Path | None = None
    """The folder of this run if it was finished before: it is read instead of computed."""
    notes: tuple[str, ...] = ()


def has_viewer() -> bool:
    """Return whether somebody watches: standard error is a terminal, or this is a notebook."""
    return err.is_terminal or err.is_jupyter


@contextmanager
def progress_bars(
    *, quiet: bool, show_plan: Callable[[Plan], None] | None = None
) -> Iterator[ShowProgress | None]:
    """Show what is `shown` of each source, search stage or training; nothing if quiet."""
    if quiet:
        yield None
        return
    with _shown() as show:

        def update(state: Any) -> None:
            if not isinstance(state, Plan):
                show(*state.shown)
            elif show_plan is not None:
                show_plan(state)

        yield update


@contextmanager
def bars(*, timed: bool = True) -> Iterator[ProgressBars]:
    """Bars that appear when they are started, so that an early error is shown alone."""
    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(elapsed_when_finished=True),
    ]
    shown = ProgressBars(*(columns if timed else columns[:-1]), console=err)
    try:
        yield shown
    finally:
        if shown.live.is_started:
            shown.stop()


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int, str], None]]:
    """Bars where they can be redrawn, else lines that appear as they happen."""
    # In a notebook rich draws with ipywidgets.
    if not (err.is_terminal or (err.is_jupyter and find_spec("ipywidgets"))):
        yield _Lines()
        return
    tasks: dict[str, TaskID] = {}
    with bars() as drawn:

        def show(name: str, done: int, total: int, note: str) -> None:
            task = drawn.tasks[tasks[name]] if name in tasks else None
            if task is None or (task.finished and done < task.completed):
                drawn.start()
                tasks[name] = drawn.add_task(name, total=total, note="")
            drawn.update(tasks[name], completed=done, total=total, note=note)

        yield show


class _Lines:
    """A line for everything that is complete, and now and then for what is under way."""

    def __init__(self) -> None:
        self._began: dict[str, float] = {}
        self._complete: set[str] = set()
        self._last = time.monotonic()

    def __call__(self, name: str, done: int, total: int, note: str) -> None:
        now, complete = time.monotonic(), done >= total
        if name in self._complete:
            if complete:
                return
            self._complete.remove(name)
            del self._began[name]
        began = self._began.setdefault(name, now)
        if complete or now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            text = f"{name}: {done:,}/{total:,}, {note}, {now - began:.0f} s"
            err.print(text, markup=False, soft_wrap=True)  # rich flushes what it prints
        if complete:
            self._complete.add(name)
