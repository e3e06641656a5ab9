"""Printing for people: lines of results, notes and errors.

Everything but results goes to standard error, so that standard output can be piped.
"""

from __future__ import annotations

from rich.console import Console

from nppr.errors import mark_controls
from nppr.run.progress import err as err

out = Console(highlight=False, emoji=False)


def duration(seconds: float) -> str:
    """Return a time as people write it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def print_line(text: str) -> None:
    """Print one line of a result on standard output."""
    out.print(mark_controls(text), markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print one line beside the results, on standard error."""
    err.print(mark_controls(text), markup=False, soft_wrap=True)


def show_error(message: str) -> None:
    """Print one line on standard error."""
    line = "error: " + " ".join(mark_controls(message).split())
    err.print(line, markup=False, soft_wrap=True, style="red")
