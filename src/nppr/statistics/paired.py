"""Comparisons on the same inputs: differences with intervals, p-values, and multiple tests.

`a` and `b` are rates in [0, 1] of two sources or two classifiers, one per input, in the same order,
so that their common part cancels. `paired_pvalues` decides which mean is higher, for any number of
inputs; `exceeds_approximately` (Student's paired t-test) is for many inputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from nppr.core.tally import BoolArray, FloatArray, IntArray
from nppr.errors import SpecError
from nppr.statistics.betting import betting, betting_pvalue, require_shares
from nppr.statistics.intervals import Interval, bootstrap, check_confidence, normal


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
    """Return the mean difference over the same inputs, with intervals for that of the population.

    `normal` and `bootstrap` are approximate: near `confidence` for many inputs. `betting` is
    guaranteed with probability at least `confidence` for any distribution of pairs. Each is the
    interval of that name for the mean of `(a - b + 1) / 2`, which lies in [0, 1].

    >>> paired_difference(np.full(9, 0.75), np.full(9, 0.25), 0.95).mean
    0.5
    """
    check_confidence(confidence)
    _require_pairs(a, b)
    x = to_unit(a, b)
    found = (normal(x, confidence), bootstrap(x, confidence, seed), betting(x, confidence, seed))
    return PairedDifference(float((a - b).mean()), *map(from_unit, found))


@dataclass(frozen=True, eq=False)
class Share:
    """A mean over some of the inputs, `sum(above) / sum(below)`, both `(N,)` over *all* inputs.

    PR: `above` is the rate and `below` is 1 if the input is clean-correct; otherwise both are 0.
    Accuracy: `above` is 1 if the input is classified correctly; `below` is always 1.
    `outcomes`: by definition, each number is one outcome, 0 or 1.
    """

    above: FloatArray
    below: FloatArray
    outcomes: bool = False

    def __post_init__(self) -> None:
        if self.above.shape != self.below.shape or not self.below.sum() > 0:
            raise SpecError("`below` must be of the same inputs as `above`, and not all 0.")

    @property
    def value(self) -> float:
        """The mean."""
        return float(self.above.sum() / self.below.sum())

    @property
    def counted(self) -> FloatArray:
        """One number for each input that counts, however often it counts."""
        counts = self.below > 0
        numbers: FloatArray = self.above[counts] / self.below[counts]
        return numbers

    def meets(self, other: Share) -> bool:
        """Whether any input counts for both."""
        return bool(((self.below > 0) & (other.below > 0)).any())


def common_numbers(a: Share, b: Share) -> tuple[FloatArray, FloatArray]:
    """Return the numbers of both on the inputs that count for both, in the same order."""
    if a.below.shape != b.below.shape:
        raise _different_inputs(a.below, b.below)
    both = (a.below > 0) & (b.below > 0)
    return a.above[both] / a.below[both], b.above[both] / b.below[both]


def paired_pvalues(
    a: FloatArray, b: FloatArray, error: float, seed: int = 0, *, outcomes: bool = False
) -> tuple[float, float]:
    """Return p-values of "the mean of a is at most that of b" and of "... at least that of b".

    Guaranteed for inputs drawn independently from one population, for any number of inputs. If each
    number is one outcome, 0 or 1 (`outcomes`), this is the exact sign test, McNemar's test: if both
    means are equal, each input on which a and b differ is equally likely to favour either.
    Otherwise it is betting on the differences. The bets are chosen for a decision at `error`; the
    p-values hold at every error.

    >>> a, b = np.repeat([1.0, 0.0], [8, 2]), np.repeat([0.0, 1.0], [8, 2])
    >>> [round(p, 3) for p in paired_pvalues(a, b, 0.05, outcomes=True)]
    [0.055, 0.989]
    """
    _require_pairs(a, b)
    x = to_unit(a, b)
    if outcomes:
        wins, losses = int((a > b).sum()), int((a < b).sum())
        return _sign_pvalue(wins, losses), _sign_pvalue(losses, wins)
    above, below = (betting_pvalue(y, 0.5, error, seed) for y in (x, 1 - x))
    return above, below


def exceeds_approximately(a: FloatArray, b: FloatArray) -> float:
    """Return the p-value of "the mean of a is at most that of b" from a one-sided paired t-test.

    Approximate, for many inputs. If all differences are equal, it is 0 if a is above b, else 1.
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
    """Return p-values of the hypotheses "the failure probability is above gamma", `(N,) -> (N,)`.

    A p-value is the probability of at most that many failures at gamma; a small one supports p <=
    gamma. If p > gamma, it is below u with probability at most u.

    >>> binomial_pvalues(np.array([0, 10]), 10, 0.5).round(4).tolist()
    [0.001, 1.0]
    """
    from scipy.stats import binom  # slow to import, and not needed for an assessment

    return np.asarray(binom.cdf(wrong, draws, gamma))


def holm_pvalues(pvalues: FloatArray) -> FloatArray:
    """Return p-values adjusted for their number, `(N,) -> (N,)`; Holm rejects those at most alpha.

    Guaranteed for any dependence between the tests: with probability at least `1 - alpha` no true
    hypothesis is rejected. Reference: Holm, Scandinavian Journal of Statistics, 1979.

    >>> holm_pvalues(np.array([0.04, 0.01, 0.03])).tolist()
    [0.06, 0.03, 0.06]
    """
    order = np.argsort(pvalues, kind="stable")
    steps = np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1))
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted


def holm(pvalues: FloatArray, alpha: float) -> BoolArray:
    """Return which hypotheses to reject, `(N,) -> (N,)`; see `holm_pvalues`.

    >>> holm(np.array([0.04, 0.01, 0.03]), 0.05).tolist()
    [False, True, False]
    """
    rejected: BoolArray = holm_pvalues(pvalues) <= alpha
    return rejected


def benjamini_hochberg(pvalues: FloatArray, alpha: float) -> BoolArray:
    """Return which hypotheses to reject, `(N,) -> (N,)`, to control the false discovery rate.

    Guaranteed for independent tests: in expectation, at most a share `alpha` of the rejected
    hypotheses is true. Nothing follows for any single one. Reference: Benjamini and Hochberg, JRSS
    B, 1995.

    >>> benjamini_hochberg(np.array([0.04, 0.01, 0.03]), 0.05).tolist()
    [True, True, True]
    """
    order = np.argsort(pvalues, kind="stable")
    n = len(pvalues)
    passed = pvalues[order] <= alpha * (np.arange(1, n + 1) / max(n, 1))
    rejected = np.zeros(n, dtype=np.bool_)
    rejected[order] = np.logical_or.accumulate(passed[::-1])[::-1]
    return rejected


def to_unit(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the differences a - b, in [-1, 1], as numbers in [0, 1]."""
    halved: FloatArray = (a - b + 1) / 2
    return halved


def from_unit(interval: Interval) -> Interval:
    """Return an interval for the mean of `to_unit` as one for the mean difference."""
    return Interval(2 * interval.low - 1, 2 * interval.high - 1)


def _require_pairs(a: FloatArray, b: FloatArray) -> None:
    if a.shape != b.shape:
        raise _different_inputs(a, b)
    require_shares(a)
    require_shares(b)


def _different_inputs(a: FloatArray, b: FloatArray) -> SpecError:
    return SpecError(f"`a` and `b` must be of the same inputs, got {len(a)} and {len(b)}.")


def _sign_pvalue(wins: int, losses: int) -> float:
    """Return the probability of at least `wins` heads in `wins + losses` tosses of a fair coin."""
    return float(scipy.special.betainc(wins, losses + 1, 0.5)) if wins else 1.0
