"""Wilson's interval and exact one-sided bounds: against scipy, and coverage summed exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nppr.errors import SpecError
from nppr.statistics.binomial import (
    clopper_pearson,
    clopper_pearson_lower,
    clopper_pearson_upper,
    error_of,
    exact_lower,
    exact_upper,
    wilson,
    wilson_tested,
)
from nppr.types import FloatArray


def coverage(low: FloatArray, high: FloatArray, p: float) -> float:
    """Of intervals for 0 ... n successes, summed over all of them."""
    right = np.arange(len(low))
    return float(stats.binom.pmf(right, len(low) - 1, p)[(low <= p) & (p <= high)].sum())


@pytest.mark.parametrize(("right", "draws"), [(0, 10), (10, 10), (3, 17), (250, 1000)])
def test_wilson_agrees_with_scipy(right: int, draws: int) -> None:
    low, high = wilson(np.array([right]), draws, 0.9)
    truth = stats.binomtest(right, draws).proportion_ci(0.9, method="wilson")
    assert float(low[0]) == pytest.approx(truth.low, abs=1e-12)
    assert float(high[0]) == pytest.approx(truth.high, abs=1e-12)


def test_wilson_ends_solve_the_score_equation() -> None:
    for p in wilson(np.array([30]), 100, 0.95)[:, 0]:
        assert abs(0.3 - p) / np.sqrt(p * (1 - p) / 100) == pytest.approx(stats.norm.isf(0.025))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_wilson_covers_nearly_where_it_was_tested(p: float) -> None:
    low, high = wilson(np.arange(401), 400, 0.95)
    assert 0.93 <= coverage(low, high, p) <= 0.97


def test_wilson_falls_short_outside() -> None:
    """Why it is flagged there: the docstring's number."""
    low, high = wilson(np.arange(401), 400, 0.95)
    assert float(low[1]) * 400 == pytest.approx(0.177, abs=1e-3)
    assert coverage(low, high, float(low[1]) - 1e-9) == pytest.approx(0.838, abs=2e-3)
    assert not wilson_tested(np.array([0, 4, 396, 400]), 400).any()
    assert wilson_tested(np.array([6, 200, 394]), 400).all()


@pytest.mark.parametrize("p", [0.001, 0.02, 0.3, 0.9, 0.999])
def test_exact_one_sided_bounds_cover(p: float) -> None:
    right = np.arange(61)
    low = clopper_pearson_lower(right, 60, 0.95)
    high = clopper_pearson_upper(right, 60, 0.95)
    assert coverage(low, np.ones(61), p) >= 0.95
    assert coverage(np.zeros(61), high, p) >= 0.95


def test_exact_one_sided_bounds_are_the_ends_at_half_the_error() -> None:
    right = np.arange(31)
    low, high = clopper_pearson(right, 30, 0.9)
    assert clopper_pearson_lower(right, 30, 0.95) == pytest.approx(low)
    assert clopper_pearson_upper(right, 30, 0.95) == pytest.approx(high)
    two_sided = clopper_pearson(right[1:-1], 30, 0.95)
    assert np.all(clopper_pearson_lower(right[1:-1], 30, 0.95) > two_sided[0])
    assert np.all(clopper_pearson_upper(right[1:-1], 30, 0.95) < two_sided[1])


def test_no_failures_have_a_closed_form_at_any_error() -> None:
    for error in (0.05, 1e-9, 1e-30):
        high = float(exact_upper(np.array([0]), 50, error)[0])
        assert high == pytest.approx(-np.expm1(np.log(error) / 50))
        assert float(exact_lower(np.array([50]), 50, error)[0]) == pytest.approx(1 - high)


@given(st.integers(1, 200), st.data())
def test_bounds_grow_with_the_count(draws: int, data: st.DataObject) -> None:
    confidence = data.draw(st.floats(0.5, 0.999))
    right = np.arange(draws + 1)
    for ends in (
        *wilson(right, draws, confidence),
        clopper_pearson_lower(right, draws, confidence),
        clopper_pearson_upper(right, draws, confidence),
    ):
        assert np.all(np.diff(ends) >= 0)
        assert np.all((ends >= 0) & (ends <= 1))
    low, high = wilson(right, draws, confidence)
    assert np.all(low <= right / draws)
    assert np.all(right / draws <= high)


def test_many_counts_are_bounded_as_one() -> None:
    right, draws = np.array([0, 3, 7]), np.array([5, 9, 7])
    for method in (clopper_pearson_lower, clopper_pearson_upper, wilson):
        together = method(right, draws, 0.95)
        apart = [method(right[i : i + 1], int(draws[i]), 0.95) for i in range(3)]
        assert np.array_equal(together, np.concatenate(apart, -1))


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan")])
def test_bad_confidence_is_named(confidence: float) -> None:
    with pytest.raises(SpecError, match="`confidence`"):
        error_of(confidence)
