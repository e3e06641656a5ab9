"""Which differences between runs are shown: exact or guaranteed tests on the inputs both have.

Every verdict is about the inputs that count for both runs: for accuracy all of them, else those that
both classify correctly without noise. Approximate intervals are shown beside it and decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nppr.compare.comparison import Difference
from nppr.statistics.paired import (
    Share,
    common_numbers,
    holm_pvalues,
    paired_difference,
    paired_pvalues,
)

SIGN_TEST = "sign-test"
BETTING = "betting"

Pair = tuple[Share, Share]
"""The same number of two runs."""


class PairVerdict(NamedTuple):
    """Whether two runs differ in a number; p-values are two-sided."""

    method: str
    p_value: float
    adjusted_p_value: float
    separated: bool


def decide(pairs: Sequence[Pair], confidence: float, seed: int = 0) -> list[PairVerdict]:
    """Decide for each pair whether the means over its common inputs differ, and in which direction.

    Guaranteed: with probability at least `confidence` *no* separated pair has equal means or the
    opposite order, however the pairs depend on each other. Each pair has two one-sided hypotheses, and
    Holm's method decides all of them together. Each pair needs at least one common input.
    """
    if not pairs:
        return []
    error = (1 - confidence) / (2 * len(pairs))
    pvalues = np.array([_pvalues(a, b, error, seed) for a, b in pairs])
    adjusted = holm_pvalues(pvalues.ravel()).reshape(pvalues.shape).min(1)
    return [
        PairVerdict(
            method=SIGN_TEST if _outcomes(a, b) else BETTING,
            p_value=min(1.0, 2 * float(both.min())),
            adjusted_p_value=float(corrected),
            separated=bool(corrected <= 1 - confidence),
        )
        for (a, b), both, corrected in zip(pairs, pvalues, adjusted, strict=True)
    ]


def difference_of(
    entries: tuple[int, int], pair: Pair, verdict: PairVerdict, confidence: float, seed: int
) -> Difference:
    """The record of a difference: its size, its two intervals and its verdict."""
    a, b = common_numbers(*pair)
    found = paired_difference(a, b, confidence, seed)
    return Difference(
        first=entries[0],
        second=entries[1],
        inputs=len(a),
        value=found.mean,
        confidence=confidence,
        guaranteed_low=found.betting.low,
        guaranteed_high=found.betting.high,
        approximate_low=found.normal.low,
        approximate_high=found.normal.high,
        first_better=int((a > b).sum()),
        second_better=int((b > a).sum()),
        **verdict._asdict(),
    )


def _outcomes(a: Share, b: Share) -> bool:
    return a.outcomes and b.outcomes


def _pvalues(first: Share, second: Share, error: float, seed: int) -> tuple[float, float]:
    """One p-value for each direction; it is 1 for the direction that was not observed."""
    a, b = common_numbers(first, second)
    above, below = paired_pvalues(a, b, error, seed, outcomes=_outcomes(first, second))
    return (above, 1.0) if a.mean() > b.mean() else (1.0, below)
