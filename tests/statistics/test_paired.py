"""Comparisons on the same inputs: intervals, one-sided tests, and many tests at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from nppr.errors import SpecError
from nppr.statistics.betting import betting
from nppr.statistics.paired import (
    Share,
    benjamini_hochberg,
    binomial_pvalues,
    exceeds_approximately,
    guaranteed_difference,
    holm,
    joint_difference,
    paired_difference,
    unpaired_difference,
)
from nppr.tally import BoolArray, FloatArray

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


def classifiers(rng: np.random.Generator, n: int, draws: int = 4) -> tuple[Share, Share]:
    """Two classifiers that find the same inputs hard, each clean-correct on inputs of its own."""
    hard = rng.normal(size=n)
    found = []
    for shift in (0.0, 0.4):
        z = hard + 0.5 * rng.normal(size=n) + shift
        correct = (rng.random(n) < special.expit(2 * z + 2)).astype(np.float64)
        found.append(Share(correct * rng.binomial(draws, special.expit(1.5 * z)) / draws, correct))
    return found[0], found[1]


@pytest.mark.slow
def test_joint_intervals_cover_and_are_narrower_than_unpaired() -> None:
    rng = np.random.default_rng(10)
    a, b = classifiers(rng, 1_000_000)
    truth = a.value - b.value
    repeats = 300
    held = {"normal": 0, "bootstrap": 0, "unpaired": 0, "guaranteed": 0}
    widths = dict.fromkeys(held, 0.0)
    for seed in range(repeats):
        a, b = classifiers(rng, 400)
        found = joint_difference(a, b, 0.95, seed)
        intervals = {"normal": found.normal, "bootstrap": found.bootstrap}
        intervals["unpaired"] = unpaired_difference(a, b, 0.95)
        if seed < 50:
            sure = guaranteed_difference(a, b, 0.95, seed)
            assert sure is not None
            intervals["guaranteed"] = sure
        for name, interval in intervals.items():
            held[name] += interval.low <= truth <= interval.high
            widths[name] += interval.high - interval.low
    for name in ("normal", "bootstrap"):
        assert 0.93 <= held[name] / repeats <= 0.97
        assert widths[name] < 0.85 * widths["unpaired"]
    assert held["guaranteed"] >= 48


def masked(rng: np.random.Generator, correct: BoolArray) -> Share:
    return Share(correct * rng.random(len(correct)), correct.astype(np.float64))


def test_where_the_same_inputs_count_it_is_the_paired_interval() -> None:
    rng = np.random.default_rng(11)
    correct = rng.random(200) < 0.7
    a, b = masked(rng, correct), masked(rng, correct)
    joint = joint_difference(a, b, 0.9, 3)
    paired = paired_difference(a.above[correct], b.above[correct], 0.9, 3)
    assert joint.value == pytest.approx(paired.mean)
    assert joint.normal.low == pytest.approx(paired.normal.low)
    assert joint.normal.high == pytest.approx(paired.normal.high)
    assert joint.bootstrap.low == pytest.approx(paired.bootstrap.low, abs=0.01)
    assert guaranteed_difference(a, b, 0.9, 3) == paired.betting


def test_the_difference_is_that_of_the_two_means() -> None:
    a = Share(np.array([1.0, 0.5, 0.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0]))
    b = Share(np.array([0.0, 0.5, 0.25, 0.0]), np.array([0.0, 1.0, 1.0, 0.0]))
    found = joint_difference(a, b, 0.95)
    assert found.value == pytest.approx(0.75 - 0.375)
    influence = (a.above[:3] - 0.75 * a.below[:3]) / (2 / 3)
    influence -= (b.above[:3] - 0.375 * b.below[:3]) / (2 / 3)
    half = stats.t.ppf(0.975, 2) * influence.std(ddof=1) / math.sqrt(3)
    assert found.normal.high == pytest.approx(min(1, 0.375 + half))


def test_the_same_share_twice_differs_by_nothing() -> None:
    a = masked(np.random.default_rng(12), np.arange(50) % 3 > 0)
    found = joint_difference(a, a, 0.95)
    assert (found.value, found.normal.low, found.normal.high) == (0, 0, 0)
    assert (found.bootstrap.low, found.bootstrap.high) == (0, 0)


def test_unpaired_is_the_interval_of_welch() -> None:
    rng = np.random.default_rng(13)
    a, b = rng.random(30), rng.random(80) ** 2
    truth = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
    found = unpaired_difference(Share(a, np.ones(30)), Share(b, np.ones(80)), 0.95)
    assert (found.low, found.high) == pytest.approx((truth.low, truth.high))


def test_resampling_in_parts_is_resampling(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(14)
    a, b = classifiers(rng, 300)
    whole = joint_difference(a, b, 0.95, 5)
    monkeypatch.setattr("nppr.statistics.paired.CELLS", 10_000)
    assert joint_difference(a, b, 0.95, 5) == whole


def test_one_input_says_nothing() -> None:
    one = Share(np.ones(1), np.ones(1))
    other = Share(np.zeros(1), np.ones(1))
    assert joint_difference(one, other, 0.95).normal.low == -1
    assert unpaired_difference(one, other, 0.95).low == -1
    sure = guaranteed_difference(one, other, 0.95)
    assert sure is not None
    assert sure.low < 0


def test_uneven_counts_have_no_guarantee() -> None:
    uneven = Share(np.array([2.0, 0.5]), np.array([2.0, 1.0]))
    assert not uneven.even
    assert guaranteed_difference(uneven, uneven, 0.95) is None


def test_shares_of_nothing_and_of_other_inputs_are_named() -> None:
    with pytest.raises(SpecError, match="`below`"):
        Share(np.zeros(3), np.zeros(3))
    with pytest.raises(SpecError, match="same inputs"):
        joint_difference(Share(np.ones(3), np.ones(3)), Share(np.ones(4), np.ones(4)), 0.95)
    with pytest.raises(SpecError, match="`confidence`"):
        unpaired_difference(Share(np.ones(3), np.ones(3)), Share(np.ones(4), np.ones(4)), 1.0)


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
