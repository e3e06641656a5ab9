"""Many inputs at once: simultaneous bounds, many tests, and bounds for what holds "at least".

`wrong` counts the failures of each input among its draws; p is its failure probability. Draws of
different inputs are independent.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special, stats

from nppr.errors import SpecError
from nppr.statistics.betting import betting_lower
from nppr.statistics.binomial import error_of, exact_upper
from nppr.types import BoolArray, FloatArray, IntArray

__all__ = [
    "benjamini_hochberg",
    "binomial_pvalues",
    "conservative_scores",
    "holm",
    "lower_mean_clipped",
    "lower_population",
    "mean_of_upper",
    "pooled_upper",
    "simultaneous_upper",
]

MOST_ERROR = 0.25


def simultaneous_upper(wrong: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Upper bounds of all failure probabilities at once, `(N,) -> (N,)`.

    Guaranteed: with probability at least `confidence` *every* bound is at least its probability.
    Bonferroni: exact bounds with an N-th of the error each.

    >>> simultaneous_upper(np.array([0, 0]), 10, 0.9).round(4).tolist()
    [0.2589, 0.2589]
    """
    return exact_upper(wrong, draws, error_of(confidence) / len(wrong))


def binomial_pvalues(wrong: IntArray, draws: IntArray | int, gamma: float) -> FloatArray:
    """P-values of the hypotheses "the failure probability is above gamma", `(N,) -> (N,)`.

    The probability of at most that many failures at gamma: a small one says p <= gamma. If p > gamma
    it is below u with probability at most u.

    >>> binomial_pvalues(np.array([0, 10]), 10, 0.5).round(4).tolist()
    [0.001, 1.0]
    """
    return np.asarray(stats.binom.cdf(wrong, draws, gamma))


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
    expectation. Says nothing about any single one. Reference: Benjamini and Hochberg, JRSS B, 1995.

    >>> benjamini_hochberg(np.array([0.04, 0.01, 0.03]), 0.05).tolist()
    [True, True, True]
    """
    order = np.argsort(pvalues, kind="stable")
    n = len(pvalues)
    passed = pvalues[order] <= alpha * (np.arange(1, n + 1) / max(n, 1))
    rejected = np.zeros(n, dtype=np.bool_)
    rejected[order] = np.logical_or.accumulate(passed[::-1])[::-1]
    return rejected


def pooled_upper(wrong: IntArray, draws: int, confidence: float) -> float:
    """Upper bound of the mean failure probability of *these* inputs; only the draws are random.

    Guaranteed for any failure probabilities p_1 ... p_N, each input having the same number of draws,
    and a confidence of at least 0.75: with probability at least `confidence` it is at least their
    mean. It is the exact binomial bound of the pooled counts, or 1 where that exceeds `1 - 1/n`, n all
    draws.

    Why counts of unequal probabilities may be pooled: S, the sum of n independent Bernoulli draws of
    mean probability u, satisfies P(S <= s) <= P(Binomial(n, u) <= s) for s <= n u - 1 (Hoeffding,
    Annals of Mathematical Statistics, 1956, Theorem 4). The bound misses when S <= s for the largest s
    with P(Binomial(n, u) <= s) < a. This s is at most n u - 1 if u <= 1 - 1/n, as P(Binomial(n, u) <=
    n u) > 1/4 >= a (Greenberg and Mohri, Statistics and Probability Letters, 2014). If u > 1 - 1/n the
    bound misses only when it is at most 1 - 1/n, which is rarer still than for u = 1 - 1/n.
    """
    return _pooled(int(wrong.sum()), len(wrong) * draws, error_of(confidence))


def mean_of_upper(
    wrong: IntArray, draws: int, confidence: float, c: float = 1.0, seed: int = 0
) -> float:
    """Upper bound of the mean over *these* inputs of `min(1, c p)`, c >= 1.

    Guaranteed with probability at least `confidence`: `1 - lower_mean_clipped`.
    """
    return 1 - lower_mean_clipped(wrong, draws, c, confidence, seed)


def lower_mean_clipped(
    wrong: IntArray, draws: int, c: float, confidence: float, seed: int = 0
) -> float:
    """Lower bound of the mean over *these* inputs of `max(0, 1 - c p)`, c >= 1.

    Guaranteed with probability at least `confidence`, only the draws being random. For c = 1 it is
    `1 - pooled_upper`. For c > 1 it is the largest of three, with a third of the error each:

    1. `1 - c U`, U the pooled upper bound of the mean of p;
    2. the mean of `max(0, 1 - c u)`, u the simultaneous upper bounds;
    3. the draws of each input are split at random in two; the first half chooses a group of inputs
       that seem robust, the second bounds its mean failure by V: `(1 - c V) * group / all`. Valid as
       inputs outside the group count at least 0, and the second half does not know the choice.

    The guarantee includes the draw of `seed`, which the third needs; choose it before looking. With
    one draw per input the third is left out and the others have half of the error each.
    """
    _require_factor(c)
    if c == 1:
        return 1 - pooled_upper(wrong, draws, confidence)
    error = error_of(confidence) / (3 if draws > 1 else 2)
    n = len(wrong)
    bounds = [
        0.0,
        1 - c * _pooled(int(wrong.sum()), n * draws, error),
        float(np.maximum(0, 1 - c * exact_upper(wrong, draws, error / n)).mean()),
    ]
    if draws > 1:
        bounds.append(_chosen_group(wrong, draws, c, error, seed))
    return max(bounds)


def lower_population(
    wrong: IntArray, draws: int, c: float, confidence: float, seed: int = 0
) -> float:
    """Lower bound of the expectation over inputs of `max(0, 1 - c p)`, c >= 1.

    Guaranteed with probability at least `confidence` for inputs drawn independently from the
    population: the betting bound of the mean of a conservative estimate g(k), k the failures of an
    input in n draws.

    Split the draws of an input in a first part of r = min(ceil(c) - 1, n // 2) and a second of n - r.
    Let G be 1 if the first has no failure, else 0, and q the share of failures in the second. Given p
    they are independent, so the expectation of `G (1 - c q)` is `(1 - p)^r (1 - c p)`: at most
    `max(0, 1 - c p)`. Its mean over all ways to split is `g(k) = C(n - r, k) / C(n, k) * (1 - c k /
    (n - r))`, which depends on k only and has the same expectation.
    """
    _require_factor(c)
    g = conservative_scores(draws, c)
    least = float(g.min())
    shares = np.clip((g[wrong] - least) / (1 - least), 0, 1)
    return max(0.0, least + (1 - least) * betting_lower(shares, confidence, seed))


def conservative_scores(draws: int, c: float) -> FloatArray:
    """The estimate g(k) of `lower_population` for k = 0 ... draws, `(draws + 1,)`."""
    held = min(math.ceil(c) - 1, draws // 2)
    rest = draws - held
    k = np.arange(draws + 1)
    log = special.gammaln
    with np.errstate(invalid="ignore"):
        kept = log(rest + 1) - log(rest - k + 1) - log(draws + 1) + log(draws - k + 1)
    return np.where(k <= rest, np.exp(kept), 0.0) * (1 - c * k / rest)


def _chosen_group(wrong: IntArray, draws: int, c: float, error: float, seed: int) -> float:
    first = draws // 2
    chosen_on = np.random.default_rng(seed).hypergeometric(wrong, draws - wrong, first)
    most = np.unique(chosen_on)
    sizes = np.searchsorted(np.sort(chosen_on), most, side="right")
    sums = np.cumsum(np.sort(chosen_on))[sizes - 1]
    promise = (1 - c * exact_upper(sums, sizes * first, error)) * sizes
    group = chosen_on <= most[promise.argmax()]
    left = int((wrong - chosen_on)[group].sum())
    failure = _pooled(left, int(group.sum()) * (draws - first), error)
    return (1 - c * failure) * float(group.mean())


def _pooled(wrong: int, draws: int, error: float) -> float:
    if error > MOST_ERROR:
        raise SpecError(f"`confidence` must be at least 0.75 here, got {1 - error}. Example: 0.95")
    high = float(exact_upper(np.array(wrong), draws, error))
    return high if high <= 1 - 1 / draws else 1.0


def _require_factor(c: float) -> None:
    if not 1 <= c < math.inf:
        raise SpecError(f"`c` must be a number of at least 1, got {c}. Example: 2")
