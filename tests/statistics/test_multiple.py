"""Many inputs: family-wise errors, false discoveries, and what holds "at least"."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nppr.errors import SpecError
from nppr.statistics.binomial import clopper_pearson_upper, exact_upper
from nppr.statistics.multiple import (
    benjamini_hochberg,
    binomial_pvalues,
    conservative_scores,
    holm,
    lower_mean_clipped,
    lower_population,
    mean_of_upper,
    pooled_upper,
    simultaneous_upper,
)
from nppr.types import FloatArray

REPEATS = 1000
SLACK = 3 * math.sqrt(0.1 * 0.9 / REPEATS)
"""Three standard errors of an error of 10 %."""

probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=30).map(np.array)


def bimodal(rng: np.random.Generator, n: int, fragile: float) -> FloatArray:
    """Failure probabilities: a share near 1, the others near 0."""
    return np.where(rng.random(n) < fragile, rng.beta(5, 0.5, n), rng.beta(0.5, 200, n))


def clipped(p: FloatArray, c: float) -> float:
    return float(np.maximum(0, 1 - c * p).mean())


def sum_distribution(p: FloatArray) -> FloatArray:
    """Probabilities of 0 ... n successes of independent draws with probabilities p."""
    found = np.ones(1)
    for each in p:
        found = np.convolve(found, [1 - each, each])
    return found


def test_simultaneous_bounds_hold_all_at_once_and_single_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    p = bimodal(rng, 30, 0.2)
    missed = missed_single = 0
    for _ in range(REPEATS):
        wrong = rng.binomial(50, p)
        missed += bool((simultaneous_upper(wrong, 50, 0.9) < p).any())
        missed_single += bool((clopper_pearson_upper(wrong, 50, 0.9) < p).any())
    assert missed / REPEATS <= 0.1 + SLACK
    assert missed_single / REPEATS > 0.3


def test_simultaneous_bounds_by_hand() -> None:
    assert simultaneous_upper(np.zeros(1000, np.int64), 100, 0.95) == pytest.approx(
        1 - (0.05 / 1000) ** 0.01
    )


def test_pvalues_agree_with_scipy() -> None:
    for wrong in (0, 3, 20):
        truth = stats.binomtest(wrong, 20, 0.3, alternative="less").pvalue
        assert float(binomial_pvalues(np.array([wrong]), 20, 0.3)[0]) == pytest.approx(truth)


def test_holm_by_hand() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p, 0.05).tolist() == [True, False, False, True]
    assert holm(p, 0.07).tolist() == [True, True, True, True]
    assert holm(np.empty(0), 0.05).tolist() == []


def test_benjamini_hochberg_agrees_with_scipy() -> None:
    rng = np.random.default_rng(1)
    for alpha in (0.05, 0.3):
        p = rng.random(200) ** 3
        adjusted = stats.false_discovery_control(p)
        assert np.array_equal(benjamini_hochberg(p, alpha), adjusted <= alpha)
    assert benjamini_hochberg(np.empty(0), 0.05).tolist() == []


@given(probabilities, st.floats(0.001, 0.999))
def test_bonferroni_rejects_within_holm_within_benjamini_hochberg(
    p: FloatArray, alpha: float
) -> None:
    bonferroni = p <= alpha / len(p)
    assert np.all(holm(p, alpha) >= bonferroni)
    assert np.all(benjamini_hochberg(p, alpha * (1 + 1e-12)) >= holm(p, alpha))
    assert np.all(benjamini_hochberg(p, alpha) <= (p <= alpha))


@given(probabilities, st.floats(0.001, 0.999))
def test_rejected_are_the_smallest_whatever_the_order(p: FloatArray, alpha: float) -> None:
    for method in (holm, benjamini_hochberg):
        rejected = method(p, alpha)
        if rejected.any() and not rejected.all():
            assert p[rejected].max() <= p[~rejected].min()
        assert np.array_equal(method(p[::-1], alpha)[::-1].sum(), rejected.sum())


def test_errors_of_many_tests_are_what_they_say() -> None:
    """40 inputs at the limit, 20 far below it: none of the 40, or few of those found, are wrong."""
    rng = np.random.default_rng(2)
    p = np.repeat([0.1001, 0.001], [40, 20])
    any_false, share_false, any_single = [], [], []
    for _ in range(REPEATS):
        pvalues = binomial_pvalues(rng.binomial(100, p), 100, 0.1)
        any_false.append(holm(pvalues, 0.1)[:40].any())
        any_single.append((pvalues <= 0.1)[:40].any())
        found = benjamini_hochberg(pvalues, 0.1)
        share_false.append(found[:40].sum() / max(1, found.sum()))
        assert found.sum() > 15
    assert np.mean(any_false) <= 0.1 + SLACK
    assert np.mean(share_false) <= 0.1 + 3 * np.std(share_false) / math.sqrt(REPEATS)
    assert np.mean(any_single) > 0.5


def test_pooled_counts_cover_any_probabilities() -> None:
    """Summed exactly over the outcomes of unequal probabilities, some of them extreme."""
    rng = np.random.default_rng(3)
    for n in (1, 2, 3, 10, 30):
        high = np.array(
            [pooled_upper(np.array([k] + [0] * (n - 1)), 1, 0.95) for k in range(n + 1)]
        )
        for _ in range(200):
            a, b = rng.choice([0.05, 0.3, 1, 5], 2)
            p = rng.beta(float(a), float(b), n)
            p = np.where(rng.random(n) < rng.choice([0, 0.5]), np.round(p), p)
            missed = sum_distribution(p)[high < p.mean()].sum()
            assert missed <= 0.05 + 1e-12


def test_pooled_counts_would_not_cover_without_the_exception() -> None:
    """Why the bound is 1 where it exceeds 1 - 1/n: one input that fails less often than others."""
    n, error = 10, 0.2
    p = np.append(np.ones(n - 1), 1 - n * (1 - 1e-9) * -math.expm1(math.log1p(-error) / n))
    plain = exact_upper(np.arange(n + 1), n, error)
    assert sum_distribution(p)[plain < p.mean() - 1e-15].sum() > error
    amended = np.where(plain > 1 - 1 / n, 1, plain)
    assert sum_distribution(p)[amended < p.mean()].sum() <= error
    assert pooled_upper(np.array([n - 1] + [0] * (n - 1)), 1, 1 - error) == 1.0


def test_pooled_is_clopper_pearson_of_the_sum() -> None:
    wrong = np.array([0, 3, 1])
    exact = float(clopper_pearson_upper(np.array([4]), 60, 0.95)[0])
    assert pooled_upper(wrong, 20, 0.95) == exact
    assert mean_of_upper(wrong, 20, 0.95) == pytest.approx(exact)


@pytest.mark.parametrize("c", [1.0, 2.0, 10.0])
@pytest.mark.parametrize("fragile", [0.0, 0.1, 0.8])
@pytest.mark.parametrize("draws", [1, 16, 100])
def test_lower_bounds_of_this_test_set_hold(c: float, fragile: float, draws: int) -> None:
    rng = np.random.default_rng(4)
    p = bimodal(rng, 100, fragile)
    truth, repeats = clipped(p, c), 300
    found = [lower_mean_clipped(rng.binomial(draws, p), draws, c, 0.9, s) for s in range(repeats)]
    assert np.mean(np.array(found) > truth) <= 0.1 + 3 * math.sqrt(0.09 / repeats)
    assert min(found) >= 0


def test_lower_bounds_hold_where_each_part_is_stressed() -> None:
    """All at the edge of the clip, where choosing a group on the same draws would cheat."""
    rng = np.random.default_rng(5)
    p = np.full(200, 0.1)
    wrong = rng.binomial(20, p)
    cheating = (1 - 10 * wrong[wrong == 0].mean()) * (wrong == 0).mean()
    assert cheating > 0.05 > clipped(p, 10) == pytest.approx(0, abs=1e-9)
    found = [lower_mean_clipped(rng.binomial(20, p), 20, 10, 0.9, s) for s in range(500)]
    assert np.mean(np.array(found) > 1e-9) <= 0.1 + 3 * math.sqrt(0.09 / 500)


def test_each_of_the_three_is_the_largest_somewhere() -> None:
    """Alike inputs: pooled. Few inputs of many draws: one by one. Some inputs fragile: a group."""
    alike = np.full(500, 1)
    assert lower_mean_clipped(alike, 200, 2, 0.95) == pytest.approx(
        1 - 2 * float(exact_upper(np.array([500]), 100_000, 0.05 / 3)[0])
    )
    few = np.array([0, 3000, 10_000])
    singles = np.maximum(0, 1 - 2 * exact_upper(few, 10_000, 0.05 / 9)).mean()
    assert lower_mean_clipped(few, 10_000, 2, 0.95) == pytest.approx(singles)
    some = np.repeat([0, 50], [900, 100])
    group = 1 - 10 * float(exact_upper(np.array([0]), 900 * 25, 0.05 / 3)[0])
    assert lower_mean_clipped(some, 50, 10, 0.95) == pytest.approx(0.9 * group)
    assert group > 0.98


@given(st.integers(2, 40), st.floats(1, 30), st.integers(0, 10**6))
def test_no_failures_bound_best_and_failures_only_lower_it(draws: int, c: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    none = np.zeros(20, np.int64)
    wrong = rng.integers(0, draws + 1, 20)
    for method in (lower_mean_clipped, lower_population):
        best = method(none, draws, c, 0.95)
        assert 0 <= method(wrong, draws, c, 0.95) <= best <= 1
        assert method(np.full(20, draws), draws, c, 0.95) == 0
        assert method(none, draws, c, 0.99) <= best


@pytest.mark.parametrize(("draws", "c"), [(1, 3.0), (2, 2.0), (16, 1.0), (16, 10.0), (100, 2.5)])
def test_scores_are_conservative_for_every_probability(draws: int, c: float) -> None:
    """Their expectation, summed exactly, is the formula of the proof and at most max(0, 1 - c p)."""
    g = conservative_scores(draws, c)
    held = min(math.ceil(c) - 1, draws // 2)
    for p in np.linspace(0, 1, 101):
        expected = float((stats.binom.pmf(np.arange(draws + 1), draws, p) * g).sum())
        assert expected == pytest.approx((1 - p) ** held * (1 - c * p), abs=1e-9)
        assert expected <= max(0, 1 - c * p) + 1e-9


def test_scores_by_splitting() -> None:
    """The closed form against random splits of 5 draws of which 2 failed, c = 3."""
    rng = np.random.default_rng(6)
    draws = rng.permuted(np.tile([1, 1, 0, 0, 0], (40_000, 1)), axis=1)
    values = (draws[:, :2].sum(1) == 0) * (1 - 3 * draws[:, 2:].mean(1))
    slack = 3 * values.std() / math.sqrt(len(values))
    assert conservative_scores(5, 3.0)[2] == pytest.approx(values.mean(), abs=slack)


@pytest.mark.parametrize("c", [1.0, 2.0, 10.0])
@pytest.mark.parametrize("fragile", [0.0, 0.3])
def test_lower_bounds_of_the_population_hold(c: float, fragile: float) -> None:
    rng = np.random.default_rng(7)
    truth = clipped(bimodal(rng, 10**6, fragile), c)
    repeats = 400
    found = [
        lower_population(rng.binomial(16, bimodal(rng, 100, fragile)), 16, c, 0.9, s)
        for s in range(repeats)
    ]
    assert np.mean(np.array(found) > truth) <= 0.1 + 3 * math.sqrt(0.09 / repeats)


def test_population_bounds_are_of_use() -> None:
    """Where some inputs always fail, far above 1 - c U."""
    wrong = np.repeat([0, 100], [900, 100])
    assert lower_population(wrong, 100, 10, 0.95) > 0.85
    assert 1 - 10 * pooled_upper(wrong, 100, 0.95) < 0


@pytest.mark.parametrize("c", [0.5, math.inf, math.nan])
def test_bad_factors_are_named(c: float) -> None:
    for method in (lower_mean_clipped, lower_population):
        with pytest.raises(SpecError, match="`c`"):
            method(np.array([1]), 10, c, 0.95)


def test_small_confidence_is_refused_where_pooling_needs_more() -> None:
    with pytest.raises(SpecError, match=r"at least 0\.75"):
        pooled_upper(np.array([1]), 10, 0.7)
