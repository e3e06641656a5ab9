"""Comparisons on the same inputs: differences with intervals, p-values, and many tests at once.

`a` and `b` are rates in [0, 1] of two sources or two classifiers, one per input, in the same order.
What they share cancels. To test whether one source is above another on the same inputs, use
`exceeds_approximately` (Student's paired t-test).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from nppr.errors import SpecError
from nppr.statistics.betting import betting, require_shares
from nppr.statistics.intervals import (
    RESAMPLES,
    Interval,
    bootstrap,
    check_confidence,
    half_width,
    normal,
    student_quantile,
)
from nppr.tally import BoolArray, FloatArray, IntArray

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

    >>> paired_difference(np.full(9, 0.75), np.full(9, 0.25), 0.95).mean
    0.5
    """
    check_confidence(confidence)
    x = _to_unit(a, b)
    found = (normal(x, confidence), bootstrap(x, confidence, seed), betting(x, confidence, seed))
    return PairedDifference(float((a - b).mean()), *map(_from_unit, found))


@dataclass(frozen=True, eq=False)
class Share:
    """A mean over some of the inputs, `sum(above) / sum(below)`, both `(N,)` over *all* inputs.

    PR: `above` is the rate and `below` 1 where the input is clean-correct, both 0 elsewhere.
    Accuracy: `above` is 1 where the input is classified correctly, `below` is 1 everywhere.
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

    def among(self, counts: BoolArray) -> Share:
        """The mean over some of the inputs, all of those with `below > 0`."""
        return Share(self.above[counts], self.below[counts])


@dataclass(frozen=True)
class JointDifference:
    """The mean of a minus the mean of b, in [-1, 1], with two approximate intervals."""

    value: float
    normal: Interval
    bootstrap: Interval


def joint_difference(a: Share, b: Share, confidence: float, seed: int = 0) -> JointDifference:
    """Difference of two means over the same N inputs, each over the inputs that count for it.

    Two classifiers are correct on different clean inputs, so there is no mean of differences. Inputs
    are resampled once for both: `bootstrap` holds percentiles of
    `sum(above_a) / sum(below_a) - sum(above_b) / sum(below_b)` over `RESAMPLES` resamples, without
    those in which nothing counts for a or b. `normal` is the value plus and minus t standard errors of
    the difference of influences, over the inputs that count for either; where the same inputs count
    for both it is that of `paired_difference`. Both are approximate.

    >>> correct = np.array([1.0, 1.0, 0.0])
    >>> found = joint_difference(Share(correct / 2, correct), Share(correct, np.ones(3)), 0.95)
    >>> round(found.value, 4)
    -0.1667
    """
    check_confidence(confidence)
    if a.below.shape != b.below.shape:
        raise _different_inputs(a.below, b.below)
    value = a.value - b.value
    counts = (a.below > 0) | (b.below > 0)
    half = half_width(a.among(counts).influence - b.among(counts).influence, confidence)
    tail = (1 - confidence) / 2
    spread = _resampled_differences(a, b, seed)
    low, high = np.quantile(spread, [tail, 1 - tail]) if len(spread) else (-1.0, 1.0)
    return JointDifference(value, _clip(value, half), Interval(float(low), float(high)))


def unpaired_difference(a: Share, b: Share, confidence: float) -> Interval:
    """Interval of the same difference as if a and b were of different, independent inputs.

    Approximate; Welch's degrees of freedom. Wider than the joint one where inputs that are hard for a
    are hard for b.
    """
    check_confidence(confidence)
    moved = [share.among(share.below > 0).influence for share in (a, b)]
    if min(map(len, moved)) < 2:
        return Interval(-1.0, 1.0)
    squares = [float(each.var(ddof=1)) / len(each) for each in moved]
    total = sum(squares)
    if total == 0:
        return _clip(a.value - b.value, 0.0)
    below = sum(square**2 / (len(each) - 1) for square, each in zip(squares, moved, strict=True))
    t = student_quantile(confidence, total**2 / below)
    return _clip(a.value - b.value, t * math.sqrt(total))


def guaranteed_difference(
    a: Share, b: Share, confidence: float, seed: int = 0, *, paired: bool = True
) -> Interval | None:
    """Interval that contains the difference with probability at least `confidence`, or None.

    Betting on the differences where `paired` and the same inputs count for both; else two betting
    intervals with half the error each, valid however a and b depend on each other. None where inputs
    count unequally often, as those of overlapping subsets do.
    """
    if not (a.even and b.even):
        return None
    if paired and np.array_equal(a.below > 0, b.below > 0):
        return _from_unit(betting(_to_unit(a.counted, b.counted), confidence, seed))
    mine, other = (betting(share.counted, (1 + confidence) / 2, seed) for share in (a, b))
    return Interval(mine.low - other.high, mine.high - other.low)


def exceeds_approximately(a: FloatArray, b: FloatArray) -> float:
    """One-sided p-value of "the mean of a is at most that of b", by the t-test of paired differences.

    Approximate, for many inputs.

    If all differences are equal there is no spread to compare with: 0 if a is above b, else 1.
    """
    _require_pairs(a, b)
    difference = a - b
    if len(difference) < 2:
        return 1.0
    spread = float(difference.std(ddof=1))
    if spread == 0:
        return 0.0 if difference[0] > 0 else 1.0
    t = float(difference.mean()) * math.sqrt(len(difference)) / spread
    return float(scipy.special.stdtr(len(difference) - 1, -t))


def binomial_pvalues(wrong: IntArray, draws: IntArray | int, gamma: float) -> FloatArray:
    """P-values of the hypotheses "the failure probability is above gamma", `(N,) -> (N,)`.

    The probability of at most that many failures at gamma: a small one supports p <= gamma. If
    p > gamma it is below u with probability at most u.

    >>> binomial_pvalues(np.array([0, 10]), 10, 0.5).round(4).tolist()
    [0.001, 1.0]
    """
    from scipy.stats import binom  # slow to import, and no assessment needs it

    return np.asarray(binom.cdf(wrong, draws, gamma))


def holm(pvalues: FloatArray, alpha: float) -> BoolArray:
    """Which hypotheses to reject, `(N,) -> (N,)`.

    Guaranteed, however the tests depend on each other: with probability at least `1 - alpha` no true
    hypothesis is rejected. Reference: Holm, Scandinavian Journal of Statistics, 1979.

    >>> holm(np.array([0.04, 0.01, 0.03]), 0.05).tolist()
    [False, True, False]
    """
    order = np.argsort(pvalues, kind="stable")
    passed = pvalues[order] <= alpha / np.arange(len(pvalues), 0, -1)
    rejected = np.zeros(len(pvalues), dtype=np.bool_)
    rejected[order] = np.logical_and.accumulate(passed)
    return rejected


def benjamini_hochberg(pvalues: FloatArray, alpha: float) -> BoolArray:
    """Which hypotheses to reject, `(N,) -> (N,)`.

    Guaranteed for independent tests: of the rejected hypotheses a share of at most `alpha` is true, in
    expectation. Nothing follows for any single one. Reference: Benjamini and Hochberg, JRSS B, 1995.

    >>> benjamini_hochberg(np.array([0.04, 0.01, 0.03]), 0.05).tolist()
    [True, True, True]
    """
    order = np.argsort(pvalues, kind="stable")
    n = len(pvalues)
    passed = pvalues[order] <= alpha * (np.arange(1, n + 1) / max(n, 1))
    rejected = np.zeros(n, dtype=np.bool_)
    rejected[order] = np.logical_or.accumulate(passed[::-1])[::-1]
    return rejected


def _require_pairs(a: FloatArray, b: FloatArray) -> None:
    if a.shape != b.shape:
        raise _different_inputs(a, b)
    require_shares(a)
    require_shares(b)


def _different_inputs(a: FloatArray, b: FloatArray) -> SpecError:
    return SpecError(f"`a` and `b` must be of the same inputs, got {len(a)} and {len(b)}.")


def _to_unit(a: FloatArray, b: FloatArray) -> FloatArray:
    """Differences in [-1, 1] as numbers in [0, 1]."""
    _require_pairs(a, b)
    halved: FloatArray = (a - b + 1) / 2
    return halved


def _from_unit(interval: Interval) -> Interval:
    return Interval(2 * interval.low - 1, 2 * interval.high - 1)


def _clip(value: float, half: float) -> Interval:
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
