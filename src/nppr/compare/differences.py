"""Differences of pairs of entries, and the ranks that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from nppr.compare.readings import Reading
from nppr.compare.schema import Difference
from nppr.statistics.estimates import APPROXIMATE, FEWEST_INPUTS, MOST_CONFIDENT
from nppr.statistics.intervals import Interval
from nppr.statistics.paired import (
    Share,
    guaranteed_difference,
    joint_difference,
    paired_difference,
    unpaired_difference,
)

__all__ = ["differences_of", "outside_regime", "ranks_of"]

NEAR = (0.1, 0.9)
"""Means between which approximate intervals were tested."""


def differences_of(
    readings: Mapping[int, Reading], confidence: float, seed: int, *, paired: bool
) -> tuple[Difference, ...]:
    """Every pair of entries that have this number, in order."""
    pairs = list(combinations(sorted(readings), 2))
    return tuple(
        _difference(first, second, readings, confidence, seed, paired=paired, pairs=len(pairs))
        for first, second in pairs
    )


def ranks_of(
    entries: Mapping[int, Reading], differences: tuple[Difference, ...]
) -> dict[int, int | None]:
    """1 + the number of entries that are surely better; None where there is nothing to rank."""
    if len(entries) < 2:
        return dict.fromkeys(entries)
    ranks: dict[int, int | None] = {}
    for entry in entries:
        better = 0
        for difference in differences:
            if difference.separated and entry in (difference.first, difference.second):
                behind = difference.first if difference.value < 0 else difference.second
                better += behind == entry
        ranks[entry] = 1 + better
    return ranks


def outside_regime(share: Share) -> bool:
    """Whether an approximate interval of this mean is outside of where it was tested."""
    few = int(np.count_nonzero(share.below)) < FEWEST_INPUTS
    return few or not NEAR[0] <= share.value <= NEAR[1]


def _difference(
    first: int,
    second: int,
    readings: Mapping[int, Reading],
    confidence: float,
    seed: int,
    *,
    paired: bool,
    pairs: int,
) -> Difference:
    a, b = readings[first].share, readings[second].share
    found, method = _interval(a, b, confidence, seed, paired=paired)
    sure = guaranteed_difference(a, b, confidence, seed, paired=paired)
    apart = unpaired_difference(a, b, confidence)
    doubtful = outside_regime(a) or outside_regime(b)
    flagged = doubtful or confidence > MOST_CONFIDENT
    return Difference(
        first=first,
        second=second,
        value=a.value - b.value,
        low=found.low,
        high=found.high,
        confidence=confidence,
        method=method,
        paired=paired,
        guaranteed_low=sure.low if sure else None,
        guaranteed_high=sure.high if sure else None,
        unpaired_low=apart.low,
        unpaired_high=apart.high,
        separated=_separated(
            a, b, 1 - (1 - confidence) / pairs, seed, paired=paired, doubtful=doubtful
        ),
        flags=(APPROXIMATE,) if flagged else (),
    )


def _interval(
    a: Share, b: Share, confidence: float, seed: int, *, paired: bool
) -> tuple[Interval, str]:
    """Paired where the same inputs count for both, else a joint bootstrap, else unpaired."""
    if not paired:
        return unpaired_difference(a, b, confidence), "unpaired-normal"
    if a.even and b.even and np.array_equal(a.below > 0, b.below > 0):
        return paired_difference(a.counted, b.counted, confidence, seed).normal, "paired-normal"
    return joint_difference(a, b, confidence, seed).bootstrap, "joint-bootstrap"


def _separated(
    a: Share, b: Share, confidence: float, seed: int, *, paired: bool, doubtful: bool
) -> bool:
    """Whether 0 lies outside the interval: the guaranteed one where the approximate is doubtful.

    Percentiles of a bootstrap do not reach far into the tails, so that of the influences is used.
    """
    if doubtful:
        found = guaranteed_difference(a, b, confidence, seed, paired=paired)
    elif paired:
        found = joint_difference(a, b, confidence, seed).normal
    else:
        found = unpaired_difference(a, b, confidence)
    return found is not None and not found.low <= 0 <= found.high
