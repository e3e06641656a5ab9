"""Bounds for noise that does not see the input: closed forms, order, and errors by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nppr.core.tally import BoolArray, Claim, Evaluate, Metric, Tally
from nppr.statistics.intervals import chernoff_upper
from nppr.statistics.lower_bounds import PerInputDraws, estimate_bounds
from nppr.statistics.noise_sets import (
    ChiSquare,
    Contaminated,
    Hellinger,
    KullbackLeibler,
    NoiseSet,
    Offset,
    kl,
)
from nppr.statistics.shared_patterns import SharedPatterns, lower_shared, lower_shared_population

SETS: list[NoiseSet] = [
    Contaminated(10),
    Contaminated(2, 0.01),
    Contaminated(1, 0.05, "tv"),
    ChiSquare(1.0),
    KullbackLeibler(0.5),
    Hellinger(0.05),
    Offset(0.5),
]
every_set = pytest.mark.parametrize("noise", SETS, ids=lambda each: each.label)


def shared_tally(correct: BoolArray, clean_correct: BoolArray | None = None) -> Tally[Evaluate]:
    """From whether input i is classified correctly under pattern j, `(N, M)`."""
    n, draws = correct.shape
    everything = np.ones(n, bool) if clean_correct is None else clean_correct
    return Tally(
        kind=Evaluate,
        indices=np.arange(n),
        labels=np.zeros(n, np.int64),
        clean_correct=everything,
        correct=correct.sum(1),
        draws=draws,
        calls=n * draws,
        micro_batch=8,
        outcomes=np.packbits(correct, axis=1),
    )


def test_failures_are_counted_by_pattern_over_the_clean_correct_inputs() -> None:
    correct = np.array([[1, 0, 1] * 7, [1, 1, 0] * 7, [0, 0, 0] * 7]).astype(bool)
    draws = SharedPatterns(shared_tally(correct, np.array([True, True, False])))
    assert draws.failures.tolist() == [0.0, 0.5, 0.5] * 7


def test_there_are_two_lower_bounds_and_an_estimate() -> None:
    rng = np.random.default_rng(0)
    tally = shared_tally(rng.random((40, 100)) > 0.1)
    here, everywhere, estimate = estimate_bounds(
        SharedPatterns(tally), Contaminated(2, kind="ratio"), 0.95
    )
    assert (here.claim, everywhere.claim) == (Claim.TEST_SET, Claim.POPULATION)
    assert (here.method, everywhere.method) == ("betting", "betting + chernoff")
    assert everywhere.value < here.value < estimate.value < 0.9
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.metric is Metric.INFIMUM
    assert {row.sees_input for row in (here, everywhere, estimate)} == {False}
    assert (here.noise_set, here.density_ratio, here.size) == ("ratio", 2, None)
    assert (here.inputs, here.draws) == (40, 100)


def test_it_is_sharper_than_the_bound_for_noise_that_sees_the_input() -> None:
    """Failures that are spread over patterns: no pattern is bad for many inputs at once."""
    rng = np.random.default_rng(1)
    correct = rng.random((400, 1000)) > 0.05
    tally = shared_tally(correct)
    blind, *_ = estimate_bounds(SharedPatterns(tally), Contaminated(10), 0.95)
    sighted, *_ = estimate_bounds(PerInputDraws(tally), Contaminated(10), 0.95)
    assert blind.value > 0.85
    assert sighted.value < 0.55


def test_cvar_by_hand() -> None:
    """One pattern in ten breaks 30 % of the inputs, the others none; c = 5: CVaR of the worst fifth."""
    failures = np.repeat([0.3, 0.0], [10, 90])
    truth = 1 - 0.3 / 2
    found = lower_shared(np.tile(failures, 300), Contaminated(5), 0.95)
    assert truth - 0.01 < found < truth


@every_set
def test_no_failure_bounds_best_and_all_failing_gives_nothing(noise: NoiseSet) -> None:
    none, all_, some = np.zeros(400), np.ones(400), np.full(400, 0.3)
    best = lower_shared(none, noise, 0.95)
    assert 0 <= lower_shared(some, noise, 0.95) < best <= 1 - float(noise.h(np.zeros(())))
    assert lower_shared(all_, noise, 0.95) == pytest.approx(0, abs=1e-9)
    assert lower_shared(none, noise, 0.99) <= best
    assert lower_shared_population(none, 100, noise, 0.95) < best


@every_set
def test_few_patterns_are_no_error(noise: NoiseSet) -> None:
    for patterns in (1, 3, 4, 5):
        assert 0 <= lower_shared(np.full(patterns, 0.1), noise, 0.95) <= 1


@given(st.floats(0, 1), st.integers(1, 5000), st.floats(0.001, 0.5))
def test_the_chernoff_bound_is_where_the_divergence_is_used_up(
    mean: float, n: int, error: float
) -> None:
    high = chernoff_upper(mean, n, error)
    assert mean <= high <= 1
    assume(high < 1 - 1e-9)
    used = float(kl(np.array(mean), np.array(high))) * n
    assert used == pytest.approx(math.log(1 / error), rel=1e-3, abs=1e-6)


def test_the_chernoff_bound_of_no_failures() -> None:
    assert chernoff_upper(0.0, 100, 0.05) == pytest.approx(1 - 0.05 ** (1 / 100))


@pytest.mark.slow
def test_the_chernoff_bound_covers() -> None:
    rng = np.random.default_rng(2)
    for p in (0.01, 0.3):
        means = rng.binomial(200, p, 2000) / 200
        missed = np.mean([chernoff_upper(each, 200, 0.05) < p for each in means])
        assert missed <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize("claim", [0, 1])
@pytest.mark.parametrize("noise", [Contaminated(5), Contaminated(2, 0.01)], ids=lambda n: n.label)
def test_bounds_above_the_truth_are_rare(noise: Contaminated, claim: int) -> None:
    """Pattern j breaks inputs whose latent number is below z_j = u_j^4 / 4: `benchmarks/bound.py`."""
    rng, repeats, missed = np.random.default_rng(3), 150, 0
    z = np.sort(((np.arange(4000) + 0.5) / 4000) ** 4 / 4)[::-1]
    weights = np.clip(1 - noise.d - np.arange(4000) * noise.c / 4000, 0, noise.c / 4000)
    for seed in range(repeats):
        latent = np.sort(rng.random(100))
        failures = np.searchsorted(latent, rng.random(200) ** 4 / 4) / 100
        if claim == 0:
            found = lower_shared(failures, noise, 0.9, seed)
            truth = 1 - noise.d - weights @ (np.searchsorted(latent, z) / 100)
        else:
            found = lower_shared_population(failures, 100, noise, 0.9, seed)
            truth = 1 - noise.d - weights @ z
        missed += int(found > truth + 1e-9)
    assert missed / repeats <= 0.1 + 2 * math.sqrt(0.09 / repeats)
