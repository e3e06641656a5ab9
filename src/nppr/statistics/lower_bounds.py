"""Lower bounds of accuracy under all noise of a set, from the tally of a reference noise.

An input that fails with probability p under the reference is classified correctly with probability
at least `1 - h(p)` under all noise of the set (`noise_sets`), whether the noise sees the input or
not. This module bounds the mean of this infimum over inputs from below.

`wrong` counts the failures of each input among its draws; draws of different inputs are
independent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import scipy

from nppr.core.tally import (
    Claim,
    Direction,
    Estimate,
    Evaluate,
    FloatArray,
    IntArray,
    Metric,
    Tally,
)
from nppr.errors import SpecError
from nppr.statistics.betting import betting_lower
from nppr.statistics.estimates import make_estimate, require_readable
from nppr.statistics.intervals import Interval, bootstrap, check_confidence, exact_upper
from nppr.statistics.noise_sets import Contaminated, NoiseSet

LEAST_CONFIDENCE = 0.75
"""With a lower confidence, failures of unequal inputs may not be pooled."""

CLAIMS = (Claim.TEST_SET, Claim.POPULATION)


@dataclass(frozen=True, eq=False)
class ReferenceDraws(ABC):
    """Draws of a reference noise from which bounds are computed."""

    sees_input: ClassVar[bool]
    """Whether the bounds hold for noise that may see the input."""
    methods: ClassVar[Mapping[Claim, str]]

    tally: Tally[Evaluate]
    seed: int = 0

    @abstractmethod
    def lower(self, claim: Claim, noise: NoiseSet, confidence: float) -> float:
        """Return a lower bound of the share classified correctly under all noise of the set."""

    @abstractmethod
    def infimum(self, noise: NoiseSet, confidence: float) -> tuple[float, Interval]:
        """Return an estimate of that infimum, and its spread."""


@dataclass(frozen=True, eq=False)
class PerInputDraws(ReferenceDraws):
    """Separate draws for every input: the mean over clean-correct inputs of the infimum `1 - h(p)`.

    For *this test set* only draws are random; the population is the one that inputs were drawn
    from. The estimate uses the observed shares as p; the infimum is convex in p, so the estimate is
    too high on average.
    """

    sees_input = True
    methods: ClassVar = {Claim.TEST_SET: "exact", Claim.POPULATION: "betting"}

    @property
    def wrong(self) -> IntArray:
        """Failures among the draws of the clean-correct inputs."""
        return self.tally.draws - self.tally.correct[self.tally.clean_correct]

    def lower(self, claim: Claim, noise: NoiseSet, confidence: float) -> float:
        bound = lower_test_set if claim is Claim.TEST_SET else lower_population
        return bound(self.wrong, self.tally.draws, noise, confidence, self.seed)

    def infimum(self, noise: NoiseSet, confidence: float) -> tuple[float, Interval]:
        x = 1 - noise.h(self.wrong / self.tally.draws)
        return float(x.mean()), bootstrap(x, confidence, self.seed)


def estimate_bounds(
    draws: ReferenceDraws, noise: NoiseSet, confidence: float, *, infimum: bool = True
) -> list[Estimate]:
    """Return bounds for all noise of one set, one for each claim, and an estimate of the infimum.

    A bound holds with probability at least `confidence`.
    """
    tally = draws.tally
    require_readable(tally, confidence, tally.headline_rates)
    if confidence < LEAST_CONFIDENCE:
        raise SpecError(f"`confidence` must be at least {LEAST_CONFIDENCE} here, got {confidence}.")
    rows = [
        make_bound_row(draws, noise, draws.lower(claim, noise, confidence), confidence, claim)
        for claim in CLAIMS
    ]
    return [*rows, *([_infimum_row(draws, noise, confidence)] if infimum else [])]


def make_bound_row(
    draws: ReferenceDraws, noise: NoiseSet, bound: float, confidence: float, claim: Claim
) -> Estimate:
    """Return a lower bound as an estimate."""
    row = make_estimate(
        draws.tally, Metric.BOUND, bound, Interval(bound, 1.0), draws.methods[claim], confidence,
        int(draws.tally.clean_correct.sum()), claim=claim, direction=Direction.LOWER_BOUND,
    )  # fmt: skip
    return replace(row, sees_input=draws.sees_input, **noise.facts)


def _infimum_row(draws: ReferenceDraws, noise: NoiseSet, confidence: float) -> Estimate:
    value, spread = draws.infimum(noise, confidence)
    row = make_estimate(
        draws.tally, Metric.INFIMUM, value, spread, "bootstrap", confidence,
        int(draws.tally.clean_correct.sum()),
    )  # fmt: skip
    return replace(row, sees_input=draws.sees_input, **noise.facts)


def estimate_bounds_jointly(
    draws: ReferenceDraws,
    sets: Sequence[NoiseSet],
    confidence: float,
    *,
    infima: bool = True,
    readings: int = 1,
) -> list[Estimate]:
    """Return the bounds of several sets; those of one claim all hold together with this confidence.

    Each set gets an equal share of the error. With `readings` kinds of draws, the bounds of all
    kinds hold together. A bound for a set also holds for the sets that it contains, so a bound is
    never below the bound of a larger set. Without `infima`, only bounds are returned.
    """
    share = 1 - (1 - confidence) / (len(sets) * readings)
    found = [estimate_bounds(draws, each, share, infimum=False) for each in sets]
    rows = []
    for each in sets:
        larger = [bounds for other, bounds in zip(sets, found, strict=True) if other.contains(each)]
        for number, claim in enumerate(CLAIMS):
            best = max(bounds[number].value for bounds in larger)
            rows.append(make_bound_row(draws, each, best, confidence, claim))
        if infima:
            rows.append(_infimum_row(draws, each, confidence))
    return rows


def find_largest_sets(
    draws: ReferenceDraws,
    families: Sequence[Sequence[NoiseSet]],
    least: float,
    confidence: float,
    *,
    readings: int = 1,
) -> list[Estimate]:
    """Find the largest set of each family of growing sets for which the bound is at least `least`.

    The sets must be fixed beforehand: they are tried one by one up to the first that fails. If the
    truth falls below `least` beyond a set, a wrong answer requires the bound of the next set to be
    wrong, which is as rare as stated. If even the smallest set fails, it is returned with its
    bound.
    """
    share = 1 - (1 - confidence) / (len(families) * readings)
    rows = []
    for family in families:
        estimate_bounds(draws, family[0], share, infimum=False)
        for claim in CLAIMS:
            found, bound = family[0], least
            for number, noise in enumerate(family):
                lower = draws.lower(claim, noise, share)
                if lower < least:
                    bound = least if number else lower
                    break
                found = noise
            rows.append(make_bound_row(draws, found, bound, confidence, claim))
    return rows


def bound_pooled_failures(wrong: IntArray, draws: int, confidence: float) -> float:
    """Return an upper bound of the mean failure probability of *these* inputs.

    Guaranteed for any failure probabilities p_1 ... p_N, if each input has the same number of draws
    and the confidence is at least 0.75: with probability at least `confidence`, it is at least
    their mean. Only the draws are random. It is the exact binomial bound of the pooled counts, or 1
    if that exceeds `1 - 1/n`, where n is the number of all draws.

    Why counts of unequal probabilities may be pooled: S, the sum of n independent Bernoulli draws
    of mean probability u, satisfies P(S <= s) <= P(Binomial(n, u) <= s) for s <= n u - 1
    (Hoeffding, Annals of Mathematical Statistics, 1956, Theorem 4). The bound misses when S <= s
    for the largest s with P(Binomial(n, u) <= s) < a. This s is at most n u - 1 if u <= 1 - 1/n, as
    P(Binomial(n, u) <= n u) > 1/4 >= a (Greenberg and Mohri, Statistics and Probability Letters,
    2014). If u > 1 - 1/n, the bound misses only when it is at most 1 - 1/n, which is rarer still
    than for u = 1 - 1/n.
    """
    return _pooled(int(wrong.sum()), len(wrong) * draws, check_confidence(confidence))


def lower_test_set(
    wrong: IntArray, draws: int, noise: NoiseSet, confidence: float, seed: int = 0
) -> float:
    """Return a lower bound of the mean over *these* inputs of `1 - h(p)`.

    Guaranteed with probability at least `confidence`; only the draws are random. If h(p) = p, it is
    `1 - bound_pooled_failures`. Otherwise it is the largest of three bounds, with a third of the
    error each:

    1. `1 - h(U)`, where U is the pooled upper bound of the mean of p; h is concave (Jensen);
    2. the mean of `1 - h(u)`, where u are the simultaneous upper bounds;
    3. the draws of each input are split at random in two; the first part chooses a group of inputs
       that seem robust, the second bounds its mean failure by V: `(1 - h(V)) * group / all`. This
       is valid because inputs outside the group count at least 0, and the second part does not
       depend on the choice. If h is curved, the first part sorts all inputs into groups of similar
       failures, each with a share of the error, and the mean of their `1 - h(V)` counts: inside a
       group, Jensen's inequality loses little.

    The guarantee includes the draw of `seed`, which the third bound needs; choose it before
    looking. With one draw per input, the third is left out and the others have half of the error
    each.
    """
    if noise == Contaminated(1.0, 0.0):
        return 1 - bound_pooled_failures(wrong, draws, confidence)
    error = check_confidence(confidence) / (3 if draws > 1 else 2)
    n = len(wrong)
    bounds = [
        _infimum(noise, _pooled(int(wrong.sum()), n * draws, error)),
        float((1 - noise.h(exact_upper(wrong, draws, error / n))).mean()),
    ]
    if draws > 1:
        by_group = _chosen_group if isinstance(noise, Contaminated) else _similar_groups
        bounds.append(by_group(wrong, draws, noise, error, seed))
    return max(bounds)


def lower_population(
    wrong: IntArray, draws: int, noise: NoiseSet, confidence: float, seed: int = 0
) -> float:
    """Return a lower bound of the expectation over inputs of `1 - h(p)`.

    Guaranteed with probability at least `confidence` for inputs drawn independently from the
    population: the betting bound of the mean of a conservative score of an input's failures k. For
    `h(p) = min(1, c p + d)` the score is `(1 - d) g(k)` with g for the ratio c / (1 - d), because
    `1 - h(p) = (1 - d) max(0, 1 - c p / (1 - d))`. Any other h uses the `tangent_scores`.
    """
    if isinstance(noise, Contaminated):
        return _betting_score(_scores(draws, noise.c, noise.d), wrong, confidence, seed)
    return _betting_score(tangent_scores(draws, noise), wrong, confidence, seed)


@lru_cache(maxsize=64)
def tangent_scores(draws: int, noise: NoiseSet) -> FloatArray:
    """Return g(k) for k = 0 ... draws, `(draws + 1,)`, with expectation at most `1 - h(p)`, h concave.

    Divide the n draws of an input into a first group of r, about 7/8 of them, and a second. The j
    failures of the first choose the tangent `c p + d` of h that touches at t = (j + 1/2) / (r + 1);
    q is the share of failures in the second. Given p, the groups are independent, and no tangent is
    below h, so the expectation of `1 - d - c q` is at most `1 - h(p)`; it is close, as t is close
    to p. Its mean over all divisions is g(k), where j is hypergeometric.
    """
    scores = tuned_scores(draws, noise, np.zeros(draws + 1))
    scores.flags.writeable = False  # the array is cached
    return scores


def tuned_scores(draws: int, noise: NoiseSet, counts: FloatArray) -> FloatArray:
    """Return `tangent_scores` tuned to inputs seen before, `counts` `(draws + 1,)` by their failures.

    The tangent for j failures of the first group touches at the share of failures in the second
    group of all earlier inputs with j, to which the `j + 1/2` of r + 1 are added. So t is close to
    p even with few draws if inputs are alike, or fail always or never. The scores are conservative
    for any `counts` that do not depend on the inputs that they are used for.
    """
    second = max(1, draws // 8)
    first = draws - second
    failed = np.arange(first + 1) + 0.5
    drawn = np.full(first + 1, first + 1.0)
    for k in np.flatnonzero(counts).tolist():
        j, weights = _divisions(draws, first, k)
        failed[j] += counts[k] * weights * (k - j)
        drawn[j] += counts[k] * weights * second
    c, d = noise.tangents(failed / drawn)
    scores = np.empty(draws + 1)
    for k in range(draws + 1):
        j, weights = _divisions(draws, first, k)
        scores[k] = weights @ (1 - d[j] - c[j] * (k - j) / second)
    return scores


@lru_cache(maxsize=256)
def _divisions(draws: int, first: int, k: int) -> tuple[IntArray, FloatArray]:
    """Return how many of k failures may fall into the first group of draws, and their probabilities."""
    second = draws - first
    logs = scipy.special.gammaln(np.arange(draws + 1) + 1.0)
    j = np.arange(max(0, k - second), min(first, k) + 1)
    ways = logs[first] - logs[j] - logs[first - j]
    ways += logs[second] - logs[k - j] - logs[second - k + j]
    weights: FloatArray = np.exp(ways + logs[k] + logs[draws - k] - logs[draws])
    return j, weights


def conservative_scores(draws: int, c: float) -> FloatArray:
    """Return g(k) for k = 0 ... draws, `(draws + 1,)`, with expectation <= `max(0, 1 - c p)`, c >= 1.

    Divide the n draws of an input into a first group of r = min(ceil(c) - 1, n // 2) and a second
    of n - r. Let G be 1 if the first has no failure, else 0, and q the share of failures in the
    second. Given p, they are independent, so the expectation of `G (1 - c q)` is
    `(1 - p)^r (1 - c p)`, which is at most `max(0, 1 - c p)`. Its mean over all divisions is
    `g(k) = C(n - r, k) / C(n, k) * (1 - c k / (n - r))`, which depends on k only and has the same
    expectation.
    """
    rest = draws - min(math.ceil(c) - 1, draws // 2)
    k = np.arange(draws + 1)
    log = scipy.special.gammaln
    with np.errstate(invalid="ignore"):
        kept = log(rest + 1) - log(rest - k + 1) - log(draws + 1) + log(draws - k + 1)
    return np.where(k <= rest, np.exp(kept), 0.0) * (1 - c * k / rest)


def _scores(draws: int, c: float, d: float) -> FloatArray:
    """Return scores with expectation <= `max(0, 1 - c p - d)`; c is at least 1 - d, as h(1) = 1."""
    return (1 - d) * conservative_scores(draws, max(1.0, c / (1 - d)))


def _betting_score(scores: FloatArray, wrong: IntArray, confidence: float, seed: int) -> float:
    """Return the betting bound of the mean score of these inputs, at least 0; `(draws + 1,)` scores."""
    least, most = float(scores.min()), float(scores.max())
    if most <= least:
        return max(0.0, least)
    shares = np.clip((scores[wrong] - least) / (most - least), 0, 1)
    return max(0.0, least + (most - least) * betting_lower(shares, confidence, seed))


def predict_bound(x: FloatArray, error: float, n: int, width: float) -> float:
    """Predict the bound that n further numbers like x, with this range, would give for their mean."""
    log = math.log(1 / error)
    return float(x.mean()) - math.sqrt(2 * float(x.var()) * log / n) - width * log / (3 * n)


def _chosen_group(wrong: IntArray, draws: int, noise: NoiseSet, error: float, seed: int) -> float:
    first = draws // 2
    chosen_on = np.random.default_rng(seed).hypergeometric(wrong, draws - wrong, first)
    most = np.unique(chosen_on)
    sizes = np.searchsorted(np.sort(chosen_on), most, side="right")
    sums = np.cumsum(np.sort(chosen_on))[sizes - 1]
    promise = (1 - noise.h(exact_upper(sums, sizes * first, error))) * sizes
    group = chosen_on <= most[promise.argmax()]
    left = int((wrong - chosen_on)[group].sum())
    failure = _pooled(left, int(group.sum()) * (draws - first), error)
    return _infimum(noise, failure) * float(group.mean())


SIMILAR_GROUPS = 8
"""Number of groups of inputs with similar failure rates, used if h is curved."""


def _similar_groups(wrong: IntArray, draws: int, noise: NoiseSet, error: float, seed: int) -> float:
    first = max(1, draws // 3)
    chosen_on = np.random.default_rng(seed).hypergeometric(wrong, draws - wrong, first)
    edges = np.unique(np.quantile(chosen_on, np.arange(1, SIMILAR_GROUPS) / SIMILAR_GROUPS))
    groups = np.searchsorted(edges, chosen_on)
    left, total = wrong - chosen_on, 0.0
    for inputs in (groups == each for each in range(len(edges) + 1)):
        size = int(inputs.sum())
        if size:
            failures = int(left[inputs].sum())
            failure = _pooled(failures, size * (draws - first), error / (len(edges) + 1))
            total += size * _infimum(noise, failure)
    return total / len(wrong)


def _infimum(noise: NoiseSet, failure: float) -> float:
    return 1 - float(noise.h(np.array(failure)))


def _pooled(wrong: int, draws: int, error: float) -> float:
    if error > 1 - LEAST_CONFIDENCE:
        raise SpecError(
            f"`confidence` must be at least {LEAST_CONFIDENCE} here, got {1 - error}. Example: 0.95"
        )
    high = float(exact_upper(np.array(wrong), draws, error))
    return high if high <= 1 - 1 / draws else 1.0
