"""Measuring: a source and a classifier give a tally."""

from nppr.measure.job import ProgressCallback, probe
from nppr.measure.loop import measure

__all__ = ["ProgressCallback", "measure", "probe"]
