"""Intervals for one mean or one binomial count, as pure functions, each with its guarantee.

`x` holds one number in [0, 1] per input, drawn independently: inputs are the sampling unit. Draws
of one input are not independent of each other, so they are never pooled with those of other inputs.

Quantiles come from `scipy.special`, which SciPy imports on first use: importing `scipy.stats` would
take longer than most intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from nppr.core.tally import BoolArray, FloatArray, IntArray
from nppr.errors import SpecError
from nppr.statistics.noise_sets import bisect_largest, kl

RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """Lower and upper end, in [0, 1] unless the quantity can exceed it."""

    low: float
    high: float

    def widened(self, margin: float, most: float = 1.0) -> Interval:
        """Return the interval with this margin added at both ends, within [0, most].

        >>> Interval(0.2, 0.9).widened(0.25)
        Interval(low=0.0, high=1.0)
        """
        if not margin:
            return self
        return Interval(max(0.0, self.low - margin), min(most, self.high + margin))


def check_confidence(confidence: float) -> float:
    """Return the error `1 - confidence`; raise `SpecError` unless 0 < confidence < 1."""
    if not 0 < confidence < 1:
        raise SpecError(f"`confidence` must lie in (0, 1), got {confidence}. Example: 0.95")
    return 1 - confidence


def clopper_pearson(successes: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Return exact binomial intervals, `(N,) -> (2, N)`.

    With probability at least `confidence`, an interval contains the success probability of its
    binomial count, for every probability. Reference: Clopper and Pearson, Biometrika, 1934.

    >>> clopper_pearson(np.array([10]), 10, 0.95).round(4).tolist()
    [[0.6915], [1.0]]
    """
    tail = (1 - confidence) / 2
    failures = draws - successes
    with np.errstate(invalid="ignore"):
        low = scipy.special.betaincinv(successes, failures + 1, tail)
        high = scipy.special.betaincinv(successes + 1, failures, 1 - tail)
    return np.stack([np.where(successes == 0, 0.0, low), np.where(failures == 0, 1.0, high)])


def clopper_pearson_upper(count: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Return exact one-sided upper bounds, `(N,) -> (N,)`.

    With probability at least `confidence`, a bound is at least the probability of the counted
    event. A count of 0 in n draws gives `1 - (1 - confidence) ** (1 / n)`.

    >>> clopper_pearson_upper(np.array([0]), 10, 0.95).round(4).tolist()
    [0.2589]
    """
    return exact_upper(count, draws, check_confidence(confidence))


def simultaneous_upper(count: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Return upper bounds of N probabilities at once, `(N,) -> (N,)`.

    Guaranteed: with probability at least `confidence`, *every* bound is at least its probability.
    The bounds are exact, each with an N-th of the error (Bonferroni).

    >>> simultaneous_upper(np.array([0, 0]), 10, 0.9).round(4).tolist()
    [0.2589, 0.2589]
    """
    return exact_upper(count, draws, check_confidence(confidence) / len(count))


def exact_upper(count: IntArray, draws: IntArray | int, error: float) -> FloatArray:
    """Return `clopper_pearson_upper` for an error, which stays precise if it is tiny."""
    with np.errstate(invalid="ignore"):
        high = scipy.special.betainccinv(count + 1, draws - count, error)
    return np.where(count == draws, 1.0, np.minimum(high, 1.0))


def wilson(successes: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Return score intervals of success probabilities, `(N,) -> (2, N)`.

    Approximate: an interval contains its probability p with probability near `confidence` unless
    `n p (1 - p)` is small. Instead of 95 % it is 92.5 to 97.5 % if `n p (1 - p)` is at least 5 and
    n at least 50, but as little as 84 % for p just below 0.177 / n. Reference: Wilson, JASA, 1927;
    Brown, Cai and DasGupta, Statistical Science, 2001.

    >>> wilson(np.array([5]), 10, 0.95).round(4).tolist()
    [[0.2366], [0.7634]]
    """
    z = -float(scipy.special.ndtri(check_confidence(confidence) / 2))
    draws = np.asarray(draws)
    p = successes / draws
    centre = (p + z**2 / (2 * draws)) / (1 + z**2 / draws)
    half = z * np.sqrt(p * (1 - p) / draws + z**2 / (4 * draws**2)) / (1 + z**2 / draws)
    low = np.where(successes == 0, 0.0, np.maximum(centre - half, 0.0))
    high = np.where(successes == draws, 1.0, np.minimum(centre + half, 1.0))
    return np.stack([low, high])


def normal(x: FloatArray, confidence: float) -> Interval:
    """Return the mean plus and minus t standard errors over inputs.

    Approximate: contains the mean of the population with probability near `confidence` for many
    inputs and a mean away from 0 and 1.
    """
    half = half_width(x, confidence)
    return _clip(float(x.mean()) - half, float(x.mean()) + half)


def half_width(x: FloatArray, confidence: float) -> float:
    """Return Student's t times the standard error of the mean; infinite for a single number."""
    if len(x) < 2:
        return math.inf
    return student_quantile(confidence, len(x) - 1) * float(x.std(ddof=1)) / math.sqrt(len(x))


def student_quantile(confidence: float, freedom: float) -> float:
    """Return t such that `[-t, t]` has probability `confidence` with `freedom` degrees of freedom."""
    return float(scipy.special.stdtrit(freedom, (1 + confidence) / 2))


def empirical_bernstein(x: FloatArray, confidence: float) -> Interval:
    """Return mean +- `sqrt(2 V log(4/a) / n) + 7 log(4/a) / (3 (n - 1))`, a = 1 - confidence.

    Guaranteed: with probability at least `confidence`, it contains the mean of the population, for
    any distribution on [0, 1] and any n >= 2. Reference: Maurer and Pontil, COLT 2009, Theorem 4,
    applied on both sides.
    """
    n = len(x)
    if n < 2:
        return Interval(0.0, 1.0)
    log = math.log(4 / (1 - confidence))
    half = math.sqrt(2 * float(x.var(ddof=1)) * log / n) + 7 * log / (3 * (n - 1))
    return _clip(float(x.mean()) - half, float(x.mean()) + half)


def hoeffding(mean: float, draws: int, confidence: float) -> Interval:
    """Return mean +- `sqrt(log(2/a) / (2 n))`, a = 1 - confidence, over n independent draws.

    Guaranteed: with probability at least `confidence`, it contains the mean of the draws'
    expectations, which may differ: the mean over *these* inputs, for which only the draws are
    random. Reference: Hoeffding, JASA, 1963.
    """
    half = math.sqrt(math.log(2 / (1 - confidence)) / (2 * draws))
    return _clip(mean - half, mean + half)


def chernoff_upper(mean: float, n: int, error: float) -> float:
    """Return an upper bound of the expected mean of n independent numbers in [0, 1].

    Guaranteed with probability at least `1 - error`, for any distributions: the largest m with
    `kl(mean, m) <= log(1 / error) / n`. Reference: Hoeffding, JASA, 1963, Theorem 1.
    """
    observed, most = np.array(mean), math.log(1 / error) / n
    return float(bisect_largest(lambda m: kl(observed, m) <= most, observed))


def bootstrap(x: FloatArray, confidence: float, seed: int = 0) -> Interval:
    """Return percentiles of the mean over resampled inputs.

    Approximate, like `normal`, but not symmetric. Reference: Efron, Annals of Statistics, 1979.
    """
    values, counts = np.unique(x, return_counts=True)
    return percentiles(_resampled_counts(counts, seed) @ values / len(x), confidence)


def ratio_bootstrap(
    x: FloatArray, clean_correct: BoolArray, confidence: float, seed: int = 0
) -> Interval:
    """Return percentiles of `mean(x) / mean(clean_correct)`, both over the same resampled inputs.

    Approximate. The ratio can exceed 1. Resamples without any clean-correct input are left out.
    """
    pairs, counts = np.unique(
        np.stack([x, clean_correct.astype(np.float64)]), axis=1, return_counts=True
    )
    above, below = (_resampled_counts(counts, seed) @ pairs.T).T
    return percentiles(above[below > 0] / below[below > 0], confidence, most=math.inf)


def resampled_means(x: FloatArray, seed: int = 0) -> FloatArray:
    """Return means of the rows of x `(M, N)` over the same resampled inputs, `(M, RESAMPLES)`."""
    random = np.random.default_rng(seed)
    n = x.shape[1]
    means = [x[:, random.integers(n, size=n)].mean(1) for _ in range(RESAMPLES)]
    return np.stack(means, 1)


def percentiles(means: FloatArray, confidence: float, most: float = 1.0) -> Interval:
    """Return the middle `confidence` of resampled means, within `[0, most]`."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return _clip(float(low), float(high), most)


def _resampled_counts(counts: IntArray, seed: int) -> IntArray:
    """Return how often each resample draws each distinct value, `(RESAMPLES, values)`.

    Drawing counts of the distinct values is equivalent to drawing inputs, at a fraction of the
    cost.
    """
    n = int(counts.sum())
    drawn: IntArray = np.random.default_rng(seed).multinomial(n, counts / n, size=RESAMPLES)
    return drawn


def _clip(low: float, high: float, most: float = 1.0) -> Interval:
    return Interval(max(0.0, low), min(most, high))
