"""Intervals against independent implementations, and their coverage by simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from nppr.statistics.intervals import (
    RESAMPLES,
    Interval,
    bootstrap,
    clopper_pearson,
    empirical_bernstein,
    hoeffding,
    normal,
    ratio_bootstrap,
    resampled_means,
)
from nppr.types import FloatArray

REPEATS = 1000
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


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("method", approximate)
def test_approximate_intervals_cover_nearly_95_percent(method: str, population: str) -> None:
    found = coverage(population, lambda x: approximate[method](x, 0.95))
    assert 0.935 - SLACK <= found <= 0.97 + SLACK


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
        right = np.array([round(x.sum() * DRAWS)])
        low, high = clopper_pearson(right, len(x) * DRAWS, 0.95)
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
    for right, draws in ((0, 10), (10, 10), (3, 17), (250, 1000)):
        low, high = clopper_pearson(np.array([right]), draws, 0.9)
        truth = stats.binomtest(right, draws).proportion_ci(0.9, method="exact")
        assert float(low[0]) == pytest.approx(truth.low)
        assert float(high[0]) == pytest.approx(truth.high)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_clopper_pearson_covers_exactly(p: float) -> None:
    """Summed over all outcomes, not simulated."""
    right = np.arange(61)
    low, high = clopper_pearson(right, 60, 0.95)
    covered = stats.binom.pmf(right, 60, p)[(low <= p) & (p <= high)].sum()
    assert covered >= 0.95


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
