"""Intervals against independent implementations, and their coverage, simulated or summed exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nppr.core.tally import FloatArray
from nppr.errors import SpecError
from nppr.statistics.intervals import (
    RESAMPLES,
    Interval,
    bootstrap,
    check_confidence,
    clopper_pearson,
    clopper_pearson_upper,
    empirical_bernstein,
    exact_upper,
    half_width,
    hoeffding,
    normal,
    ratio_bootstrap,
    resampled_means,
    simultaneous_upper,
    student_quantile,
    wilson,
)

REPEATS = 300

SLACK = 2 * np.sqrt(0.95 * 0.05 / REPEATS)
"""Two standard errors of a simulated coverage."""

POPULATIONS: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "clustered-0.1": lambda rng, n: rng.beta(0.3, 2.7, n),
    "clustered-0.5": lambda rng, n: rng.beta(2.0, 2.0, n),
    "clustered-0.9": lambda rng, n: rng.beta(2.7, 0.3, n),
    "bimodal-0.5": lambda rng, n: rng.integers(0, 2, n).astype(float),
    "bimodal-0.8": lambda rng, n: np.where(rng.random(n) < 0.75, 1.0, 0.2),
}

MEANS = [0.1, 0.5, 0.9, 0.5, 0.8]

INPUTS, DRAWS = 400, 20

approximate = {"normal": normal, "bootstrap": bootstrap}


def coverage(population: str, interval: Callable[[FloatArray], Interval]) -> float:
    truth = MEANS[list(POPULATIONS).index(population)]
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(REPEATS):
        p = POPULATIONS[population](rng, INPUTS)
        found = interval(rng.binomial(DRAWS, p) / DRAWS)
        hits += found.low <= truth <= found.high
    return hits / REPEATS


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("method", approximate)
def test_approximate_intervals_cover_nearly_95_percent(method: str, population: str) -> None:
    found = coverage(population, lambda x: approximate[method](x, 0.95))
    assert 0.935 - SLACK <= found <= 0.97 + SLACK


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
def test_the_guaranteed_interval_covers_at_least_95_percent(population: str) -> None:
    assert coverage(population, lambda x: empirical_bernstein(x, 0.95)) >= 0.95 - SLACK


@pytest.mark.parametrize("draws", [1, 20])
def test_the_test_set_interval_covers_these_inputs(draws: int) -> None:
    """Inputs are fixed, only draws are random."""
    rng = np.random.default_rng(7)
    p = rng.beta(0.5, 0.3, INPUTS)
    hits = 0
    for _ in range(REPEATS):
        mean = float((rng.binomial(draws, p) / draws).mean())
        found = hoeffding(mean, INPUTS * draws, 0.95)
        hits += found.low <= p.mean() <= found.high
    assert hits / REPEATS >= 0.95 - SLACK
    assert hoeffding(0.5, INPUTS * draws, 0.95).high < 0.6


def test_pooling_draws_as_if_independent_would_not_cover() -> None:
    """What we do not do: why inputs are the sampling unit."""

    def pooled(x: FloatArray) -> Interval:
        correct = np.array([round(x.sum() * DRAWS)])
        low, high = clopper_pearson(correct, len(x) * DRAWS, 0.95)
        return Interval(float(low[0]), float(high[0]))

    assert coverage("bimodal-0.5", pooled) < 0.5


@pytest.mark.parametrize("extreme", [0.001, 0.999])
def test_the_guaranteed_interval_holds_near_0_and_1(extreme: float) -> None:
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(REPEATS):
        found = empirical_bernstein(rng.binomial(1, extreme, 50).astype(float), 0.95)
        hits += found.low <= extreme <= found.high
    assert hits / REPEATS >= 0.95 - SLACK


def test_clopper_pearson_agrees_with_scipy() -> None:
    for correct, draws in ((0, 10), (10, 10), (3, 17), (250, 1000)):
        low, high = clopper_pearson(np.array([correct]), draws, 0.9)
        truth = stats.binomtest(correct, draws).proportion_ci(0.9, method="exact")
        assert float(low[0]) == pytest.approx(truth.low)
        assert float(high[0]) == pytest.approx(truth.high)


@pytest.mark.slow
def test_ratio_bootstrap_covers() -> None:
    """Clean-normalised accuracy: 90 % clean accuracy, noise breaks some and mends a few."""
    rng = np.random.default_rng(3)
    truth = (0.9 * 0.7 + 0.1 * 0.2) / 0.9
    hits = 0
    for _ in range(REPEATS):
        clean = rng.random(INPUTS) < 0.9
        p = np.where(clean, rng.beta(1.4, 0.6, INPUTS), 0.2)
        found = ratio_bootstrap(rng.binomial(DRAWS, p) / DRAWS, clean, 0.95)
        hits += found.low <= truth <= found.high
    assert 0.935 - SLACK <= hits / REPEATS <= 0.97 + SLACK


def test_bootstrap_over_distinct_values_is_the_bootstrap_over_inputs() -> None:
    rng = np.random.default_rng(4)
    x = rng.binomial(5, 0.4, 300) / 5
    means = x[rng.integers(0, 300, (20_000, 300))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    found = bootstrap(x, 0.95)
    assert found.low == pytest.approx(low, abs=0.004)
    assert found.high == pytest.approx(high, abs=0.004)


def test_normal_by_hand() -> None:
    x = np.array([0.2, 0.4, 0.6, 0.8])
    half = stats.t.ppf(0.95, 3) * x.std(ddof=1) / 2
    assert normal(x, 0.9).low == pytest.approx(0.5 - half)
    assert normal(x, 0.9).high == pytest.approx(0.5 + half)


def test_empirical_bernstein_by_hand() -> None:
    x = np.tile([0.0, 1.0], 5000)
    log = np.log(4 / 0.05)
    half = np.sqrt(2 * x.var(ddof=1) * log / 10_000) + 7 * log / (3 * 9999)
    assert empirical_bernstein(x, 0.95).high == pytest.approx(0.5 + half)


@pytest.mark.parametrize("method", [normal, bootstrap, empirical_bernstein])
def test_intervals_grow_with_confidence_and_hold_the_mean(
    method: Callable[[FloatArray, float], Interval],
) -> None:
    x = np.random.default_rng(5).beta(2, 3, 500)
    narrow, wide = method(x, 0.8), method(x, 0.99)
    assert 0 <= wide.low < narrow.low < x.mean() < narrow.high < wide.high <= 1


def test_one_input_says_nothing() -> None:
    for method in (normal, empirical_bernstein):
        assert method(np.array([0.5]), 0.95) == Interval(0.0, 1.0)


def test_resampling_is_seeded() -> None:
    x = np.random.default_rng(6).random(50)
    assert bootstrap(x, 0.95, seed=1) == bootstrap(x, 0.95, seed=1)
    assert bootstrap(x, 0.95, seed=1) != bootstrap(x, 0.95, seed=2)


def test_resampled_means_have_the_mean_and_its_standard_error() -> None:
    x = np.random.default_rng(8).gamma(2.0, 3.0, (2, 300))
    means = resampled_means(x)
    assert means.shape == (2, RESAMPLES)
    error = x.std(1) / np.sqrt(300)
    assert means.std(1) == pytest.approx(error, rel=5 / np.sqrt(2 * RESAMPLES))
    assert np.abs((means.mean(1) - x.mean(1)) / error).max() < 5 / np.sqrt(RESAMPLES)


def test_rows_are_resampled_together() -> None:
    x = np.random.default_rng(9).random(60)
    means = resampled_means(np.stack([x, 1 - x, np.ones(60)]))
    assert np.allclose(means[0] + means[1], 1.0)
    assert np.allclose(means[2], 1.0)
    assert np.array_equal(means, resampled_means(np.stack([x, 1 - x, np.ones(60)])))
    assert not np.array_equal(means[0], resampled_means(x[None], seed=1)[0])


def exact_coverage(low: FloatArray, high: FloatArray, p: float) -> float:
    """Of intervals for 0 ... n successes, summed over all of them."""
    successes = np.arange(len(low))
    return float(stats.binom.pmf(successes, len(low) - 1, p)[(low <= p) & (p <= high)].sum())


@pytest.mark.parametrize(("successes", "draws"), [(0, 10), (10, 10), (3, 17), (250, 1000)])
def test_wilson_agrees_with_scipy(successes: int, draws: int) -> None:
    low, high = wilson(np.array([successes]), draws, 0.9)
    truth = stats.binomtest(successes, draws).proportion_ci(0.9, method="wilson")
    assert float(low[0]) == pytest.approx(truth.low, abs=1e-12)
    assert float(high[0]) == pytest.approx(truth.high, abs=1e-12)


def test_wilson_ends_solve_the_score_equation() -> None:
    for p in wilson(np.array([30]), 100, 0.95)[:, 0]:
        assert abs(0.3 - p) / np.sqrt(p * (1 - p) / 100) == pytest.approx(stats.norm.isf(0.025))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_wilson_covers_nearly_where_it_was_tested(p: float) -> None:
    low, high = wilson(np.arange(401), 400, 0.95)
    assert 0.93 <= exact_coverage(low, high, p) <= 0.97


def test_wilson_falls_short_outside() -> None:
    """Why it is flagged there: the docstring's number."""
    low, high = wilson(np.arange(401), 400, 0.95)
    assert float(low[1]) * 400 == pytest.approx(0.177, abs=1e-3)
    assert exact_coverage(low, high, float(low[1]) - 1e-9) == pytest.approx(0.838, abs=2e-3)


@pytest.mark.parametrize("p", [0.001, 0.02, 0.3, 0.9, 0.999])
def test_exact_one_sided_bounds_cover(p: float) -> None:
    successes = np.arange(61)
    high = clopper_pearson_upper(successes, 60, 0.95)
    assert exact_coverage(np.zeros(61), high, p) >= 0.95


def test_exact_one_sided_bounds_are_the_ends_at_half_the_error() -> None:
    successes = np.arange(31)
    _, high = clopper_pearson(successes, 30, 0.9)
    assert clopper_pearson_upper(successes, 30, 0.95) == pytest.approx(high)
    two_sided = clopper_pearson(successes[1:-1], 30, 0.95)
    assert np.all(clopper_pearson_upper(successes[1:-1], 30, 0.95) < two_sided[1])


def test_no_failures_have_a_closed_form_at_any_error() -> None:
    for error in (0.05, 1e-9, 1e-30):
        high = float(exact_upper(np.array([0]), 50, error)[0])
        assert high == pytest.approx(-np.expm1(np.log(error) / 50))


@given(st.integers(1, 200), st.data())
def test_bounds_grow_with_the_count(draws: int, data: st.DataObject) -> None:
    confidence = data.draw(st.floats(0.5, 0.999))
    successes = np.arange(draws + 1)
    for ends in (
        *wilson(successes, draws, confidence),
        clopper_pearson_upper(successes, draws, confidence),
    ):
        assert np.all(np.diff(ends) >= 0)
        assert np.all((ends >= 0) & (ends <= 1))
    low, high = wilson(successes, draws, confidence)
    assert np.all(low <= successes / draws)
    assert np.all(successes / draws <= high)


def test_many_counts_are_bounded_as_one() -> None:
    successes, draws = np.array([0, 3, 7]), np.array([5, 9, 7])
    for method in (clopper_pearson_upper, wilson):
        together = method(successes, draws, 0.95)
        apart = [method(successes[i : i + 1], int(draws[i]), 0.95) for i in range(3)]
        assert np.array_equal(together, np.concatenate(apart, -1))


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan")])
def test_bad_confidence_is_named(confidence: float) -> None:
    with pytest.raises(SpecError, match="`confidence`"):
        check_confidence(confidence)


def test_simultaneous_bounds_hold_all_at_once_and_single_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    p = np.where(rng.random(30) < 0.2, rng.beta(5, 0.5, 30), rng.beta(0.5, 200, 30))
    missed = missed_single = 0
    for _ in range(REPEATS):
        wrong = rng.binomial(50, p)
        missed += bool((simultaneous_upper(wrong, 50, 0.9) < p).any())
        missed_single += bool((clopper_pearson_upper(wrong, 50, 0.9) < p).any())
    assert missed / REPEATS <= 0.1 + 3 * np.sqrt(0.09 / REPEATS)
    assert missed_single / REPEATS > 0.3


def test_simultaneous_bounds_by_hand() -> None:
    assert simultaneous_upper(np.zeros(1000, np.int64), 100, 0.95) == pytest.approx(
        1 - (0.05 / 1000) ** 0.01
    )


@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-9])
def test_quantiles_are_those_of_scipy_stats_to_the_last_digit(confidence: float) -> None:
    tail = (1 - confidence) / 2
    for draws in (1, 7, 100, 10_000):
        count = np.unique(np.linspace(0, draws, 50).astype(np.int64))
        low, high = clopper_pearson(count, draws, confidence)
        some, all_but_all = count[count > 0], count[count < draws]
        assert np.array_equal(low[1:], stats.beta.ppf(tail, some, draws - some + 1))
        exact = stats.beta.ppf(1 - tail, all_but_all + 1, draws - all_but_all)
        assert np.array_equal(high[:-1], exact)
        upper = stats.beta.isf(1 - confidence, all_but_all + 1, draws - all_but_all)
        assert np.array_equal(clopper_pearson_upper(all_but_all, draws, confidence), upper)
    for freedom in (1, 4, 399, 1e6, 17.3):
        expected = stats.t.ppf((1 + confidence) / 2, freedom)
        assert student_quantile(confidence, freedom) == expected


def test_a_single_number_has_no_half_width() -> None:
    assert half_width(np.array([0.3]), 0.95) == np.inf
