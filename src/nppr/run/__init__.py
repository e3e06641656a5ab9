"""One run: measure every source on the same inputs, read the tallies, gather the report."""

from nppr.run.complete import Run
from nppr.run.session import Session
from nppr.run.settings import Facts, Settings

__all__ = ["Facts", "Run", "Session", "Settings"]
