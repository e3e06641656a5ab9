"""The test of all noise of a set: what it can show, and how seldom it is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from nppr.core.tally import FloatArray
from nppr.errors import SpecError
from nppr.statistics.intervals import Interval
from nppr.statistics.lower_bounds import tangent_scores, tuned_scores
from nppr.statistics.noise_set_test import SET_DRAWS, NoiseSetTest
from nppr.statistics.noise_sets import (
    ChiSquare,
    Contaminated,
    Hellinger,
    KullbackLeibler,
    NoiseSet,
    Offset,
)
from nppr.statistics.sequential import Verdict

SETS = (
    Contaminated(1.0, 0.05, "tv"),
    Contaminated(10.0, kind="ratio"),
    ChiSquare(1.0),
    KullbackLeibler(0.5),
    Hellinger(0.05),
    Offset(0.5),
)
PAST = {
    "nothing": np.zeros(SET_DRAWS + 1),
    "no failure": np.eye(SET_DRAWS + 1)[0] * 5000,
    "only failures": np.eye(SET_DRAWS + 1)[-1] * 5000,
    "all or nothing": (np.eye(SET_DRAWS + 1)[0] + np.eye(SET_DRAWS + 1)[-1]) * 500,
    "anything": np.arange(SET_DRAWS + 1.0),
}


def decided(
    noise: NoiseSet, at_least: float, p: FloatArray, seed: int, error: float = 0.05
) -> NoiseSetTest:
    random = np.random.default_rng(seed)
    test = NoiseSetTest(noise, at_least, 1 - error)
    for start in range(0, len(p), 64):
        wrong = random.binomial(SET_DRAWS, p[start : start + 64])
        if test.update(wrong) is not Verdict.UNDECIDED:
            break
    return test


@pytest.mark.parametrize("noise", SETS, ids=str)
@pytest.mark.parametrize("past", PAST)
def test_scores_enclose_the_infimum_whatever_was_seen_before(noise: NoiseSet, past: str) -> None:
    """Their expectations, summed exactly, lie on their sides of 1 - h(p) for every p."""
    k, p = np.arange(SET_DRAWS + 1), np.linspace(0, 1, 201)
    weights = stats.binom.pmf(k[:, None], SET_DRAWS, p)
    infimum = 1 - noise.h(p)
    assert (tuned_scores(SET_DRAWS, noise, PAST[past]) @ weights - infimum).max() <= 1e-9
    test = NoiseSetTest(noise, 0.1, 0.95)
    assert (test.best * (1 - test.losses) @ weights - infimum).min() >= -1e-9


def test_scores_that_have_seen_much_reach_the_best() -> None:
    """An input that never failed counts nearly 1 once many others never did."""
    noise = ChiSquare(1.0)
    assert tangent_scores(SET_DRAWS, noise)[0] < 0.91
    assert tuned_scores(SET_DRAWS, noise, PAST["all or nothing"])[0] > 0.98


def test_what_is_shown_comes_near_the_truth() -> None:
    p = np.random.default_rng(0).random(20_000) < 0.01
    assert decided(ChiSquare(1.0), 0.98, p.astype(float), seed=1).verdict is Verdict.HOLDS


@pytest.mark.slow
@pytest.mark.parametrize("noise", [SETS[0], SETS[2]], ids=str)
@pytest.mark.parametrize("law", ["1 % always", "half always", "alike"])
def test_verdicts_at_the_boundary_are_rare(noise: NoiseSet, law: str) -> None:
    """At the truth both verdicts are wrong: each at most as often as stated."""
    random, repeats, error = np.random.default_rng(5), 100, 0.1
    fragile = {"1 % always": 0.01, "half always": 0.5, "alike": 0.0}[law]
    other = 0.03 if law == "alike" else 0.0
    truth = (1 - fragile) * (1 - float(noise.h(np.array(other))))
    found = [
        decided(
            noise, truth, np.where(random.random(320) < fragile, 1.0, other), seed, error
        ).verdict
        for seed in range(repeats)
    ]
    allowed = error + 2 * math.sqrt(error * (1 - error) / repeats)
    for wrong in (Verdict.HOLDS, Verdict.VIOLATED):
        assert found.count(wrong) / repeats <= allowed


def test_a_verdict_is_final_and_its_bound_is_on_its_side() -> None:
    test = decided(ChiSquare(1.0), 0.8, np.zeros(640), seed=0)
    seen = test.draws
    assert test.update(np.full(64, SET_DRAWS)) is Verdict.HOLDS
    assert test.draws == test.correct == seen
    assert test.bounds().low >= 0.8 - 1e-9
    refuted = decided(ChiSquare(1.0), 0.8, np.full(640, 0.3), seed=0)
    assert refuted.verdict is Verdict.VIOLATED
    assert refuted.bounds().high <= 0.8 + 1e-9


def test_without_inputs_nothing_is_shown() -> None:
    test = NoiseSetTest(ChiSquare(1.0), 0.8, 0.95)
    assert test.update(np.zeros(0, np.int64)) is Verdict.UNDECIDED
    assert (test.value(), test.draws, test.bounds()) == (None, 0, Interval(0.0, 1.0))


def test_bad_levels_and_counts_are_named() -> None:
    with pytest.raises(SpecError, match="`at_least` must lie in"):
        NoiseSetTest(ChiSquare(1.0), 1.0, 0.95)
    with pytest.raises(SpecError, match=r"must be below 0\.95"):
        NoiseSetTest(SETS[0], 0.96, 0.95)
    with pytest.raises(SpecError, match=r"`wrong` must lie in 0 \.\.\. 16, got 0 to 17"):
        NoiseSetTest(SETS[0], 0.9, 0.95).update(np.array([0, 17]))
