"""Intervals as pure functions, each with the statement it makes.

`x` are numbers in [0, 1], one per input, drawn independently: inputs are the sampling unit. Draws of
one input are not independent of each other, so they are never pooled with those of others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from nppr.types import BoolArray, FloatArray, IntArray

__all__ = [
    "Interval",
    "bootstrap",
    "clopper_pearson",
    "empirical_bernstein",
    "hoeffding",
    "normal",
    "ratio_bootstrap",
    "resampled_means",
]

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """Lower and upper end, in [0, 1] unless the quantity can exceed it."""

    low: float
    high: float


def clopper_pearson(right: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Exact binomial intervals, `(N,) -> (2, N)`.

    With probability at least `confidence` an interval holds the success probability of its binomial
    count, whatever that is. Reference: Clopper and Pearson, Biometrika, 1934.

    >>> clopper_pearson(np.array([10]), 10, 0.95).round(4).tolist()
    [[0.6915], [1.0]]
    """
    tail = (1 - confidence) / 2
    wrong = draws - right
    with np.errstate(invalid="ignore"):
        low = np.where(right == 0, 0.0, stats.beta.ppf(tail, right, wrong + 1))
        high = np.where(wrong == 0, 1.0, stats.beta.ppf(1 - tail, right + 1, wrong))
    return np.stack([low, high])


def normal(x: FloatArray, confidence: float) -> Interval:
    """Mean plus and minus t standard errors over inputs.

    Approximate: holds the mean of the population with probability near `confidence` for many inputs
    and a mean away from 0 and 1.
    """
    if len(x) < 2:
        return Interval(0.0, 1.0)
    t = float(stats.t.ppf((1 + confidence) / 2, len(x) - 1))
    half = t * float(x.std(ddof=1)) / math.sqrt(len(x))
    return _within(float(x.mean()) - half, float(x.mean()) + half)


def bootstrap(x: FloatArray, confidence: float, seed: int = 0) -> Interval:
    """Percentiles of the mean over resampled inputs.

    Approximate, as `normal`, but not symmetric. Reference: Efron, Annals of Statistics, 1979.
    """
    values, counts = np.unique(x, return_counts=True)
    return _percentiles(_resampled(counts, seed) @ values / len(x), confidence)


def ratio_bootstrap(
    x: FloatArray, clean_correct: BoolArray, confidence: float, seed: int = 0
) -> Interval:
    """Percentiles of `mean(x) / mean(clean_correct)`, both over the same resampled inputs.

    Approximate. The ratio can exceed 1. Resamples without any clean-correct input are left out.
    """
    pairs, counts = np.unique(
        np.stack([x, clean_correct.astype(np.float64)]), axis=1, return_counts=True
    )
    above, below = (_resampled(counts, seed) @ pairs.T).T
    return _percentiles(above[below > 0] / below[below > 0], confidence, most=math.inf)


def resampled_means(x: FloatArray, seed: int = 0) -> FloatArray:
    """Means of the rows of x `(M, N)` over the same resampled inputs, `(M, RESAMPLES)`."""
    random = np.random.default_rng(seed)
    n = x.shape[1]
    means = [x[:, random.integers(n, size=n)].mean(1) for _ in range(RESAMPLES)]
    return np.stack(means, 1)


def empirical_bernstein(x: FloatArray, confidence: float) -> Interval:
    """Mean plus and minus `sqrt(2 V log(4/a) / n) + 7 log(4/a) / (3 (n - 1))`, a = 1 - confidence.

    Guaranteed: with probability at least `confidence` it holds the mean of the population, for any
    distribution on [0, 1] and any n >= 2. Reference: Maurer and Pontil, COLT 2009, Theorem 4, used
    on both sides.
    """
    n = len(x)
    if n < 2:
        return Interval(0.0, 1.0)
    log = math.log(4 / (1 - confidence))
    half = math.sqrt(2 * float(x.var(ddof=1)) * log / n) + 7 * log / (3 * (n - 1))
    return _within(float(x.mean()) - half, float(x.mean()) + half)


def hoeffding(mean: float, draws: int, confidence: float) -> Interval:
    """Mean plus and minus `sqrt(log(2/a) / (2 n))`, a = 1 - confidence, over n independent draws.

    Guaranteed: with probability at least `confidence` it holds the mean of the draws' expectations,
    which need not be equal: the mean over *these* inputs, of which only the draws are random.
    Reference: Hoeffding, JASA, 1963.
    """
    half = math.sqrt(math.log(2 / (1 - confidence)) / (2 * draws))
    return _within(mean - half, mean + half)


def _resampled(counts: IntArray, seed: int) -> IntArray:
    """How often each distinct value is drawn in each resample, `(RESAMPLES, values)`.

    Drawing counts of the distinct values is the same as drawing inputs, at a fraction of the cost.
    """
    n = int(counts.sum())
    drawn: IntArray = np.random.default_rng(seed).multinomial(n, counts / n, size=RESAMPLES)
    return drawn


def _percentiles(means: FloatArray, confidence: float, most: float = 1.0) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return _within(float(low), float(high), most)


def _within(low: float, high: float, most: float = 1.0) -> Interval:
    return Interval(max(0.0, low), min(most, high))
