"""Differences of two sources, or two classifiers, on the same inputs.

`a` and `b` are rates in [0, 1], one per input, in the same order. What they share cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
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
from nppr.statistics.intervals import RESAMPLES, Interval, bootstrap, normal
from nppr.types import FloatArray

__all__ = [
    "JointDifference",
    "PairedDifference",
    "Share",
    "exceeds",
    "exceeds_approximately",
    "guaranteed_difference",
    "half_width",
    "joint_difference",
    "paired_difference",
    "unpaired_difference",
]

CELLS = 4_000_000
"""Numbers held at once while resampling."""


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


@dataclass(frozen=True, eq=False)
class Share:
    """A mean over some of the inputs, `sum(above) / sum(below)`, both `(N,)` over *all* inputs.

    PR: `above` is the rate and `below` 1 where the input is right without noise, both 0 elsewhere.
    Accuracy: `above` is 1 where the input is right, `below` is 1 everywhere.
    """

    above: FloatArray
    below: FloatArray

    def __post_init__(self) -> None:
        if self.above.shape != self.below.shape or not self.below.sum() > 0:
            raise SpecError("`below` must be of the same inputs as `above`, and not all 0.")

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.above.sum() / self.below.sum())

    @property
    def counted(self) -> FloatArray:
        """The numbers the mean is of, where every input that counts does so equally often."""
        counts = self.below > 0
        numbers: FloatArray = self.above[counts] / self.below[counts]
        return numbers

    @property
    def even(self) -> bool:
        """Whether every input that counts does so equally often."""
        return len(np.unique(self.below[self.below > 0])) == 1

    @property
    def influence(self) -> FloatArray:
        """How much each input moves the mean, `(above - value below) / mean(below)`, `(N,)`."""
        moved: FloatArray = (self.above - self.value * self.below) / self.below.mean()
        return moved


@dataclass(frozen=True)
class JointDifference:
    """The mean of a minus the mean of b, in [-1, 1], with two approximate intervals."""

    value: float
    normal: Interval
    bootstrap: Interval


def joint_difference(a: Share, b: Share, confidence: float, seed: int = 0) -> JointDifference:
    """Difference of two means over the same N inputs, of which each counts its own part.

    Two classifiers are right without noise on different inputs, so that a mean of differences does
    not exist. Inputs are resampled once for both: `bootstrap` are the percentiles of
    `sum(above_a) / sum(below_a) - sum(above_b) / sum(below_b)` over `RESAMPLES` resamples; one in which
    nothing counts for a or b is left out. `normal` is the value plus and minus t standard errors of the
    difference of influences, over the inputs that count for either; where the same inputs count for
    both it is that of `paired_difference`. Both are approximate.

    >>> right = np.array([1.0, 1.0, 0.0])
    >>> joint_difference(Share(right / 2, right), Share(right, np.ones(3)), 0.95).value.__round__(4)
    -0.1667
    """
    error_of(confidence)
    if a.below.shape != b.below.shape:
        raise SpecError(
            f"`a` and `b` must be of the same inputs, got {len(a.below)} and {len(b.below)}."
        )
    value = a.value - b.value
    counts = (a.below > 0) | (b.below > 0)
    mine, other = (Share(x.above[counts], x.below[counts]).influence for x in (a, b))
    half = half_width(mine - other, confidence)
    tail = (1 - confidence) / 2
    spread = _resampled_differences(a, b, seed)
    low, high = np.quantile(spread, [tail, 1 - tail]) if len(spread) else (-1.0, 1.0)
    return JointDifference(value, _inside(value, half), Interval(float(low), float(high)))


def unpaired_difference(a: Share, b: Share, confidence: float) -> Interval:
    """Interval of the same difference as if a and b were of different, independent inputs.

    Approximate; Welch's degrees of freedom. Wider than the joint one where inputs that are hard for a
    are hard for b.
    """
    error_of(confidence)
    parts = [Share(x.above[x.below > 0], x.below[x.below > 0]).influence for x in (a, b)]
    if min(len(part) for part in parts) < 2:
        return Interval(-1.0, 1.0)
    squares = [float(part.var(ddof=1)) / len(part) for part in parts]
    total = sum(squares)
    if total == 0:
        return _inside(a.value - b.value, 0.0)
    below = sum(s**2 / (len(part) - 1) for s, part in zip(squares, parts, strict=True))
    t = float(stats.t.ppf((1 + confidence) / 2, total**2 / below))
    return _inside(a.value - b.value, t * math.sqrt(total))


def guaranteed_difference(
    a: Share, b: Share, confidence: float, seed: int = 0, *, paired: bool = True
) -> Interval | None:
    """Interval that holds the difference with probability at least `confidence`, or None.

    Betting on the differences where `paired` and the same inputs count for both; else two betting
    intervals with half the error each, which holds however a and b depend on each other. None where
    inputs count unequally often, as those of overlapping subsets do.
    """
    if not (a.even and b.even):
        return None
    same = paired and np.array_equal(a.below > 0, b.below > 0)
    if same:
        found = betting(_halved(a.counted, b.counted), confidence, seed)
        return Interval(2 * found.low - 1, 2 * found.high - 1)
    mine, other = (betting(x.counted, (1 + confidence) / 2, seed) for x in (a, b))
    return Interval(mine.low - other.high, mine.high - other.low)


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


def half_width(moved: FloatArray, confidence: float) -> float:
    """Student t times the standard error of a mean; infinite for a single number."""
    if len(moved) < 2:
        return math.inf
    t = float(stats.t.ppf((1 + confidence) / 2, len(moved) - 1))
    return t * float(moved.std(ddof=1)) / math.sqrt(len(moved))


def _inside(value: float, half: float) -> Interval:
    return Interval(max(-1.0, value - half), min(1.0, value + half))


def _resampled_differences(a: Share, b: Share, seed: int) -> FloatArray:
    """The difference in every resample in which something counts for both, `(<= RESAMPLES,)`.

    Drawing counts of the distinct rows is the same as drawing inputs, at a fraction of the cost.
    """
    rows, counts = np.unique(
        np.stack([a.above, a.below, b.above, b.below], axis=1), axis=0, return_counts=True
    )
    random, n = np.random.default_rng(seed), len(a.above)
    at_once = max(1, CELLS // len(rows))
    sums = np.concatenate(
        [
            random.multinomial(n, counts / n, size=min(at_once, RESAMPLES - done)) @ rows
            for done in range(0, RESAMPLES, at_once)
        ]
    )
    sums = sums[(sums[:, 1] > 0) & (sums[:, 3] > 0)]
    differences: FloatArray = sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3]
    return differences
