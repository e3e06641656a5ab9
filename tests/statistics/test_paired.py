"""Comparisons on the same inputs: intervals, one-sided tests, and many tests at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nppr.core.tally import FloatArray
from nppr.errors import SpecError
from nppr.statistics.betting import betting
from nppr.statistics.paired import (
    Share,
    benjamini_hochberg,
    binomial_pvalues,
    common_numbers,
    exceeds_approximately,
    holm,
    holm_pvalues,
    paired_difference,
    paired_pvalues,
)

REPEATS = 200


def rates(rng: np.random.Generator, n: int, shift: float) -> tuple[FloatArray, FloatArray]:
    """Two sources on the same bimodal inputs, the first correct more often by `shift`."""
    p = np.clip(rng.beta(0.3, 0.3, n), 0, 1 - shift)
    return rng.binomial(16, p + shift) / 16, rng.binomial(16, p) / 16


@pytest.mark.slow
def test_intervals_cover_the_difference() -> None:
    rng = np.random.default_rng(0)
    missed = {"normal": 0, "bootstrap": 0, "betting": 0}
    for seed in range(REPEATS):
        found = paired_difference(*rates(rng, 400, 0.05), 0.9, seed)
        for name in missed:
            interval = getattr(found, name)
            missed[name] += not interval.low <= 0.05 <= interval.high
    slack = 3 * math.sqrt(0.1 * 0.9 / REPEATS)
    assert missed["betting"] / REPEATS <= 0.1 + slack
    for name in ("normal", "bootstrap"):
        assert 0.09 - slack <= missed[name] / REPEATS <= 0.115 + slack


def test_normal_is_the_paired_t_interval() -> None:
    a, b = rates(np.random.default_rng(1), 50, 0.1)
    truth = stats.ttest_rel(a, b).confidence_interval(0.95)
    found = paired_difference(a, b, 0.95)
    assert found.mean == pytest.approx(float((a - b).mean()))
    assert found.normal.low == pytest.approx(truth.low)
    assert found.normal.high == pytest.approx(truth.high)


def test_pairing_is_narrower_than_two_intervals() -> None:
    a, b = rates(np.random.default_rng(2), 400, 0.05)
    found = paired_difference(a, b, 0.95).betting
    apart = [betting(x, 0.975) for x in (a, b)]
    assert found.high - found.low < 0.6 * sum(at.high - at.low for at in apart)


def test_swapping_mirrors() -> None:
    a, b = rates(np.random.default_rng(3), 400, 0.1)
    there, back = paired_difference(a, b, 0.95), paired_difference(b, a, 0.95)
    assert there.mean == -back.mean
    for name in ("normal", "betting"):
        assert getattr(there, name).low == pytest.approx(-getattr(back, name).high, abs=1e-8)
    assert there.betting.low > 0 > back.betting.high


def test_the_approximate_pvalue_is_that_of_scipy() -> None:
    a, b = rates(np.random.default_rng(5), 80, 0.02)
    truth = stats.ttest_rel(a, b, alternative="greater").pvalue
    assert exceeds_approximately(a, b) == pytest.approx(truth)
    same = np.full(5, 0.5)
    assert exceeds_approximately(same + 0.25, same) == 0
    assert exceeds_approximately(same, same) == 1
    assert exceeds_approximately(same[:1], same[:1]) == 1


def test_a_difference_is_found_and_its_reverse_is_not() -> None:
    a, b = rates(np.random.default_rng(6), 400, 0.05)
    assert exceeds_approximately(a, b) < 0.05 < exceeds_approximately(b, a)


def test_orders_are_found_by_holm() -> None:
    rng = np.random.default_rng(8)
    p = rng.beta(0.5, 0.5, 500) * 0.8
    sources = [rng.binomial(16, p + shift) / 16 for shift in (0.15, 0.05, 0.05)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    pvalues = np.array([exceeds_approximately(sources[i], sources[j]) for i, j in pairs])
    assert holm(pvalues, 0.05).tolist() == [True, True, False]


def test_different_inputs_are_named() -> None:
    with pytest.raises(SpecError, match="same inputs"):
        paired_difference(np.zeros(3), np.zeros(4), 0.95)
    with pytest.raises(SpecError, match="`x`"):
        exceeds_approximately(np.array([2.0]), np.array([0.0]))


def test_outcomes_are_decided_by_the_exact_sign_test() -> None:
    a, b = np.repeat([1.0, 0.0, 1.0], [54, 7, 276]), np.repeat([0.0, 1.0, 1.0], [54, 7, 276])
    above, below = paired_pvalues(a, b, 0.05, outcomes=True)
    assert above == pytest.approx(stats.binomtest(54, 61, alternative="greater").pvalue)
    assert below == pytest.approx(stats.binomtest(54, 61, alternative="less").pvalue)
    assert above < 1e-9
    assert paired_pvalues(b, a, 0.05, outcomes=True) == (below, above)
    assert paired_pvalues(a, a, 0.05, outcomes=True) == (1.0, 1.0)


def test_rates_are_decided_by_bets_that_agree_with_the_guaranteed_interval() -> None:
    """At one level the interval excludes 0 exactly if a p-value is below it."""
    rng = np.random.default_rng(9)
    decided = []
    for shift in (0.0, 0.03, 0.05, 0.08):
        for seed in range(5):
            a, b = rates(rng, 200, shift)
            both = paired_pvalues(a, b, 0.025, seed)
            interval = paired_difference(a, b, 0.95, seed).betting
            decided.append(min(both) <= 0.025)
            assert decided[-1] == (not interval.low <= 0 <= interval.high)
    assert 5 <= sum(decided) <= 15


def test_pvalues_of_long_runs_and_of_one_input_are_numbers() -> None:
    one = np.ones(1)
    assert paired_pvalues(one, one, 0.05) == (1.0, 1.0)
    above, below = paired_pvalues(np.ones(20_000), np.zeros(20_000), 0.05)
    assert (above, below) == (0.0, 1.0)
    above, below = paired_pvalues(np.ones(2_000), np.zeros(2_000), 0.05, outcomes=True)
    assert (above, below) == (0.0, 1.0)


def test_only_inputs_that_count_for_both_are_compared() -> None:
    a = Share(np.array([1.0, 0.5, 0.0, 3.0]), np.array([1.0, 1.0, 0.0, 4.0]))
    b = Share(np.array([0.0, 0.5, 0.25, 1.0]), np.array([0.0, 1.0, 1.0, 2.0]))
    ours, theirs = common_numbers(a, b)
    assert ours.tolist() == [0.5, 0.75]
    assert theirs.tolist() == [0.5, 0.5]
    assert a.meets(b)
    assert not a.meets(Share(np.eye(4)[2], np.eye(4)[2]))


def test_shares_of_nothing_and_of_other_inputs_are_named() -> None:
    with pytest.raises(SpecError, match="`below`"):
        Share(np.zeros(3), np.zeros(3))
    with pytest.raises(SpecError, match="same inputs"):
        common_numbers(Share(np.ones(3), np.ones(3)), Share(np.ones(4), np.ones(4)))
    with pytest.raises(SpecError, match="`x`"):
        paired_pvalues(np.array([2.0]), np.array([0.0]), 0.05)


probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=30).map(np.array)


def test_pvalues_agree_with_scipy() -> None:
    for wrong in (0, 3, 20):
        truth = stats.binomtest(wrong, 20, 0.3, alternative="less").pvalue
        assert float(binomial_pvalues(np.array([wrong]), 20, 0.3)[0]) == pytest.approx(truth)


def test_holm_by_hand() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    assert holm(p, 0.05).tolist() == [True, False, False, True]
    assert holm(p, 0.07).tolist() == [True, True, True, True]
    assert holm(np.empty(0), 0.05).tolist() == []
    assert holm_pvalues(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm_pvalues(np.array([0.4, 0.5])).tolist() == [0.8, 0.8]


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
    bonferroni = p * len(p) <= alpha
    assert np.all(holm(p, alpha) >= bonferroni)
    assert np.all(benjamini_hochberg(p, alpha * (1 + 1e-12)) >= holm(p, alpha))
    assert np.all(benjamini_hochberg(p, alpha) <= (p <= alpha))


@given(probabilities, st.floats(0.001, 0.999))
def test_rejected_are_the_smallest_whatever_the_order(p: FloatArray, alpha: float) -> None:
    for method in (holm, benjamini_hochberg):
        rejected = method(p, alpha)
        assert p[rejected].max(initial=0.0) <= p[~rejected].min(initial=1.0)
        assert np.array_equal(method(p[::-1], alpha)[::-1].sum(), rejected.sum())


def test_errors_of_many_tests_are_what_they_say() -> None:
    """40 inputs at the limit, 20 far below it: none of the 40, or few of those found, are wrong."""
    rng = np.random.default_rng(2)
    p = np.repeat([0.1001, 0.001], [40, 20])
    any_false, share_false, any_single = [], [], []
    for _ in range(1000):
        pvalues = binomial_pvalues(rng.binomial(100, p), 100, 0.1)
        any_false.append(holm(pvalues, 0.1)[:40].any())
        any_single.append((pvalues <= 0.1)[:40].any())
        found = benjamini_hochberg(pvalues, 0.1)
        share_false.append(found[:40].sum() / max(1, found.sum()))
        assert found.sum() > 15
    assert np.mean(any_false) <= 0.1 + 0.03
    assert np.mean(share_false) <= 0.1 + 3 * np.std(share_false) / math.sqrt(1000)
    assert np.mean(any_single) > 0.5
