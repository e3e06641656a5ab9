"""Differences of two sources, or two classifiers, on the same inputs.

`a` and `b` are rates in [0, 1], one per input, in the same order. What they share cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

from nppr.errors import SpecError
from nppr.statistics.betting import (
    betting,
    final_log_capital,
    in_orders,
    plug_in_bets,
    require_shares,
)
from nppr.statistics.binomial import error_of
from nppr.statistics.intervals import Interval, bootstrap, normal
from nppr.types import FloatArray

__all__ = ["PairedDifference", "exceeds", "exceeds_approximately", "paired_difference"]


@dataclass(frozen=True)
class PairedDifference:
    """Mean of a - b over inputs, in [-1, 1], with two approximate intervals and a guaranteed one."""

    mean: float
    normal: Interval
    bootstrap: Interval
    betting: Interval


def paired_difference(
    a: FloatArray, b: FloatArray, confidence: float, seed: int = 0
) -> PairedDifference:
    """Mean difference over the same inputs, with intervals for that of the population.

    `normal` and `bootstrap` are approximate: near `confidence` for many inputs. `betting` is guaranteed
    with probability at least `confidence` for any distribution of pairs. Each is the interval of that
    name for the mean of `(a - b + 1) / 2`, which lies in [0, 1].

    >>> import numpy as np
    >>> paired_difference(np.full(9, 0.75), np.full(9, 0.25), 0.95).mean
    0.5
    """
    error_of(confidence)
    x = _halved(a, b)
    found = (normal(x, confidence), bootstrap(x, confidence, seed), betting(x, confidence, seed))
    return PairedDifference(
        float((a - b).mean()), *(Interval(2 * at.low - 1, 2 * at.high - 1) for at in found)
    )


def exceeds(a: FloatArray, b: FloatArray, alpha: float, seed: int = 0) -> float:
    """P-value of "the mean of a is at most that of b", one-sided.

    Guaranteed: if that is so, the p-value is at most u with probability at most u, for any
    distribution of pairs, any u and any number of inputs. It is the inverse of the capital that betting
    on a > b ends with, in the mean over 8 orders of the inputs. The bets are best for reaching `alpha`:
    the level of the test, divided by the number of tests when there are many. Choose `alpha` and `seed`
    before looking.
    """
    if not 0 < alpha < 1:
        raise SpecError(f"`alpha` must lie in (0, 1), got {alpha}. Example: 0.05")
    x = _halved(a, b)
    rows = in_orders(x, seed)
    return min(1.0, math.exp(-final_log_capital(rows, plug_in_bets(rows, alpha, len(x)), 0.5)))


def exceeds_approximately(a: FloatArray, b: FloatArray) -> float:
    """P-value of the same, by the t-test of paired differences: approximate, for many inputs.

    Differences that are all the same have no spread to compare with: 0 if a is above b, else 1.
    """
    _halved(a, b)
    difference = a - b
    if len(difference) < 2:
        return 1.0
    spread = float(difference.std(ddof=1))
    if spread == 0:
        return 0.0 if difference[0] > 0 else 1.0
    t = float(difference.mean()) * math.sqrt(len(difference)) / spread
    return float(stats.t.sf(t, len(difference) - 1))


def _halved(a: FloatArray, b: FloatArray) -> FloatArray:
    if a.shape != b.shape:
        raise SpecError(f"`a` and `b` must be of the same inputs, got {len(a)} and {len(b)}.")
    require_shares(a)
    require_shares(b)
    halved: FloatArray = (a - b + 1) / 2
    return halved
