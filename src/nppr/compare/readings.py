"""The numbers of a run as means over inputs, and those of several runs as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nppr.report.folder import RunFiles
from nppr.report.schema import Report
from nppr.report.shares import Key, lines_of, shares_of, winner_of
from nppr.search.search_record import FAMILY
from nppr.statistics.paired import Share
from nppr.types import IntArray

__all__ = ["Reading", "gathered", "readings_of", "won_by_noise"]


@dataclass(frozen=True, eq=False)
class Reading:
    """A mean over inputs; `indices` `(N,)` are those of the data set, ascending."""

    indices: IntArray
    share: Share


def won_by_noise(report: Report) -> set[str]:
    """Learned sources that a reference noise beat on the select part."""
    return {made["source"] for made in report.distributions if winner_of(made) != FAMILY}


def readings_of(run: RunFiles) -> dict[Key, Reading]:
    """All headlines whose lines the run holds; each mean must be the one of the report."""
    lines = lines_of(run.per_input, run.path)
    shares = shares_of(run.report, lines, run.path)
    return {
        key: Reading(next(iter(lines.values()))["index"], share) for key, share in shares.items()
    }


def gathered(readings: Sequence[Reading]) -> Reading:
    """Several runs as one: an input counts as often as it was measured, its rates are added."""
    if len(readings) == 1:
        return readings[0]
    indices = np.unique(np.concatenate([reading.indices for reading in readings]))
    above, below = np.zeros(len(indices)), np.zeros(len(indices))
    for reading in readings:
        at = np.searchsorted(indices, reading.indices)
        above[at] += reading.share.above
        below[at] += reading.share.below
    return Reading(indices, Share(above, below))
