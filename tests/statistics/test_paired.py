"""Paired differences: intervals and one-sided tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from nppr.errors import SpecError
from nppr.statistics.betting import betting, betting_lower
from nppr.statistics.multiple import holm
from nppr.statistics.paired import exceeds, exceeds_approximately, paired_difference
from nppr.types import FloatArray

REPEATS = 300


def rates(rng: np.random.Generator, n: int, shift: float) -> tuple[FloatArray, FloatArray]:
    """Two sources on the same bimodal inputs, the first right more often by `shift`."""
    p = np.clip(rng.beta(0.3, 0.3, n), 0, 1 - shift)
    return rng.binomial(16, p + shift) / 16, rng.binomial(16, p) / 16


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


def test_the_guaranteed_pvalue_is_rarely_small_when_nothing_differs() -> None:
    rng = np.random.default_rng(4)
    outcomes = rng.binomial(1, 0.5, (2000, 2, 200)).astype(float)
    found = np.array([exceeds(a, b, 0.05, seed) for seed, (a, b) in enumerate(outcomes)])
    for level in (0.01, 0.05, 0.2):
        assert np.mean(found <= level) <= level + 3 * math.sqrt(level * (1 - level) / 2000)
    assert np.mean(found <= 0.05) > 0.002


def test_the_approximate_pvalue_is_that_of_scipy() -> None:
    a, b = rates(np.random.default_rng(5), 80, 0.02)
    truth = stats.ttest_rel(a, b, alternative="greater").pvalue
    assert exceeds_approximately(a, b) == pytest.approx(truth)
    same = np.full(5, 0.5)
    assert exceeds_approximately(same + 0.25, same) == 0
    assert exceeds_approximately(same, same) == 1
    assert exceeds_approximately(same[:1], same[:1]) == 1


def test_a_difference_is_told_and_its_reverse_is_not() -> None:
    a, b = rates(np.random.default_rng(6), 400, 0.05)
    assert exceeds(a, b, 0.05) < 0.05
    assert exceeds(b, a, 0.05) == 1.0 or exceeds(b, a, 0.05) > 0.3
    assert exceeds_approximately(a, b) < 0.05 < exceeds_approximately(b, a)
    assert exceeds(a, a, 0.05) == 1.0


def test_the_pvalue_is_small_just_when_the_lower_bound_is_above_0() -> None:
    rng = np.random.default_rng(7)
    told = 0
    for seed in range(100):
        a, b = rates(rng, 100, 0.05)
        above = betting_lower((a - b + 1) / 2, 0.95, seed) > 0.5
        assert (exceeds(a, b, 0.05, seed) <= 0.05) == above
        told += above
    assert 10 < told < 90


def test_orders_are_told_by_holm() -> None:
    rng = np.random.default_rng(8)
    p = rng.beta(0.5, 0.5, 500) * 0.8
    sources = [rng.binomial(16, p + shift) / 16 for shift in (0.15, 0.05, 0.05)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    pvalues = np.array([exceeds(sources[i], sources[j], 0.05 / 3) for i, j in pairs])
    assert holm(pvalues, 0.05).tolist() == [True, True, False]


def test_different_inputs_are_named() -> None:
    with pytest.raises(SpecError, match="same inputs"):
        paired_difference(np.zeros(3), np.zeros(4), 0.95)
    with pytest.raises(SpecError, match="`x`"):
        exceeds(np.array([2.0]), np.array([0.0]), 0.05)
    with pytest.raises(SpecError, match="`alpha`"):
        exceeds(np.zeros(3), np.zeros(3), 0.0)
