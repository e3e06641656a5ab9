"""From the tally of a reference noise to what holds for all noise of bounded density ratio.

Noise whose density is at most c times that of the reference fails on an input with probability at most
c p, p being the failure probability under the reference. The infimum over such noise of the share of
correct draws is thus `max(0, 1 - c p)`, and its mean over inputs is bounded from below here.

`wrong` counts the failures of each input among its draws; draws of different inputs are independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy

from nppr.errors import SpecError
from nppr.statistics.betting import betting_lower
from nppr.statistics.estimates import make_estimate, require_readable
from nppr.statistics.intervals import Interval, bootstrap, check_confidence, exact_upper
from nppr.tally import Claim, Direction, Estimate, Evaluate, FloatArray, IntArray, Metric, Tally

LEAST_CONFIDENCE = 0.75
"""Below it, failures of unequal inputs may not be pooled."""


def at_least_together(
    tally: Tally[Evaluate], ratios: Sequence[float], confidence: float, seed: int = 0
) -> dict[float, list[Estimate]]:
    """`at_least` for several values of c whose bounds all hold together with this confidence.

    Each gets an equal share of the error. What holds for a larger c holds for a smaller one too, so a
    bound is never below that of a larger c.
    """
    share = 1 - (1 - confidence) / len(ratios)
    found: dict[float, list[Estimate]] = {}
    best: dict[Claim, float] = {}
    for c in sorted(ratios, reverse=True):
        *bounds, _ = at_least(tally, c, share, seed)
        *_, infimum = at_least(tally, c, confidence, seed)
        found[c] = []
        for row in bounds:
            bound = best[row.claim] = max(row.value, best.get(row.claim, 0.0))
            found[c].append(replace(row, value=bound, low=bound, confidence=confidence))
        found[c].append(infimum)
    return {c: found[c] for c in ratios}


def at_least(tally: Tally[Evaluate], c: float, confidence: float, seed: int = 0) -> list[Estimate]:
    """The mean over clean-correct inputs of the infimum `max(0, 1 - c p)`: two bounds, one estimate.

    The bounds hold with probability at least `confidence`: the first for *this test set*, where only
    draws are random, the second for the population the inputs were drawn from. The estimate puts the
    observed shares for p; as the infimum is convex in p it is too high on average.
    """
    require_readable(tally, confidence, tally.headline_rates)
    if confidence < LEAST_CONFIDENCE:
        raise SpecError(f"`confidence` must be at least {LEAST_CONFIDENCE} here, got {confidence}.")
    draws = tally.draws
    wrong = draws - tally.correct[tally.clean_correct]
    n, infimum = len(wrong), np.maximum(0.0, 1 - c * wrong / draws)
    bounds = (
        (Claim.TEST_SET, "exact", lower_mean_clipped(wrong, draws, c, confidence, seed)),
        (Claim.POPULATION, "betting", lower_population(wrong, draws, c, confidence, seed)),
    )
    rows = [
        make_estimate(
            tally, Metric.BOUND, low, Interval(low, 1.0), method, confidence, n,
            claim=claim, direction=Direction.LOWER_BOUND,
        )
        for claim, method, low in bounds
    ]  # fmt: skip
    spread, mean = bootstrap(infimum, confidence, seed), float(infimum.mean())
    return [*rows, make_estimate(tally, Metric.INFIMUM, mean, spread, "bootstrap", confidence, n)]


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
    return _pooled(int(wrong.sum()), len(wrong) * draws, check_confidence(confidence))


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
       inputs outside the group count at least 0, and the second half does not depend on the choice.

    The guarantee includes the draw of `seed`, which the third needs; choose it before looking. With
    one draw per input the third is left out and the others have half of the error each.
    """
    _require_ratio(c)
    if c == 1:
        return 1 - pooled_upper(wrong, draws, confidence)
    error = check_confidence(confidence) / (3 if draws > 1 else 2)
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

    Divide the draws of an input into a first group of r = min(ceil(c) - 1, n // 2) and a second of
    n - r. Let G be 1 if the first has no failure, else 0, and q the share of failures in the second.
    Given p they are independent, so the expectation of `G (1 - c q)` is `(1 - p)^r (1 - c p)`: at most
    `max(0, 1 - c p)`. Its mean over all divisions is `g(k) = C(n - r, k) / C(n, k) * (1 - c k /
    (n - r))`, which depends on k only and has the same expectation.
    """
    _require_ratio(c)
    g = conservative_scores(draws, c)
    least = float(g.min())
    shares = np.clip((g[wrong] - least) / (1 - least), 0, 1)
    return max(0.0, least + (1 - least) * betting_lower(shares, confidence, seed))


def conservative_scores(draws: int, c: float) -> FloatArray:
    """The estimate g(k) of `lower_population` for k = 0 ... draws, `(draws + 1,)`."""
    held = min(math.ceil(c) - 1, draws // 2)
    rest = draws - held
    k = np.arange(draws + 1)
    log = scipy.special.gammaln
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
    if error > 1 - LEAST_CONFIDENCE:
        raise SpecError(
            f"`confidence` must be at least {LEAST_CONFIDENCE} here, got {1 - error}. Example: 0.95"
        )
    high = float(exact_upper(np.array(wrong), draws, error))
    return high if high <= 1 - 1 / draws else 1.0


def _require_ratio(c: float) -> None:
    if not 1 <= c < math.inf:
        raise SpecError(f"`c` must be a number of at least 1, got {c}. Example: 2")
