"""The questions of a gate, on draws whose probabilities are known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppr.core.tally import FloatArray
from nppr.data import Slice
from nppr.gate.sequential_draws import (
    DrawnBlock,
    LevelQuestion,
    PairedQuestion,
    Question,
    WorstQuestion,
)
from nppr.statistics.noise_set_test import NoiseSetTest
from nppr.statistics.noise_sets import Contaminated
from nppr.statistics.sequential import MeanTest, Verdict, one_sided_bound

INPUTS = 640


def ask(question: Question, probabilities: FloatArray, seed: int = 0, draws: int = 1) -> None:
    random = np.random.default_rng(seed)
    for start in range(0, len(probabilities), 64):
        at = np.arange(start, min(len(probabilities), start + 64))
        question.update(DrawnBlock(at, random.binomial(draws, probabilities[at]), 64, draws))


def slices(number: int = 4) -> list[Slice]:
    own = np.arange(INPUTS) % number
    return [Slice("weather", f"w{each}", own == each) for each in range(number)]


@pytest.mark.parametrize(
    ("worst", "verdict"),
    [(0.99, Verdict.HOLDS), (0.3, Verdict.VIOLATED), (0.7, Verdict.UNDECIDED)],
)
def test_the_worst_slice_decides(worst: float, verdict: Verdict) -> None:
    question = WorstQuestion(0.7, 0.005, slices())
    ask(question, np.where(np.arange(INPUTS) % 4 == 2, worst, 0.99))
    found = question.read()
    assert question.verdict is verdict
    if verdict is not Verdict.HOLDS:
        assert found.slices[0].requirement == "w2"
    assert found.value == found.slices[0].value
    assert found.interval.low <= worst <= found.interval.high
    assert found.draws == sum(each.draws for each in found.slices)


def test_all_slices_hold_at_the_error_of_one_and_their_intervals_at_shares_of_it() -> None:
    question = WorstQuestion(0.7, 0.005, slices())
    ask(question, np.ones(INPUTS))
    found = question.read()
    counts = INPUTS // 4, 0
    assert found.interval.low == one_sided_bound(*counts, 0.995, above=True)
    assert {each.low for each in found.slices} == {
        one_sided_bound(*counts, 1 - 0.005 / 4, above=True)
    }


def test_a_slice_without_inputs_leaves_it_undecided() -> None:
    empty = Slice("weather", "fog", np.zeros(INPUTS, bool))
    question = WorstQuestion(0.7, 0.005, [*slices(), empty])
    ask(question, np.ones(INPUTS))
    assert question.verdict is Verdict.UNDECIDED
    assert question.read().slices[0].requirement == "fog"


def paired(loss: float, baseline: float = 0.9) -> PairedQuestion:
    test = MeanTest((1 - loss) / 2, 0.995, loss / 2)
    return PairedQuestion(test, np.full(INPUTS, baseline), np.ones(INPUTS, bool), 16)


@pytest.mark.parametrize(
    ("now", "verdict"),
    [(0.95, Verdict.HOLDS), (0.6, Verdict.VIOLATED), (0.85, Verdict.UNDECIDED)],
)
def test_a_difference_from_a_baseline_is_decided(now: float, verdict: Verdict) -> None:
    question = paired(0.05)
    ask(question, np.full(INPUTS, now), draws=16)
    found = question.read()
    assert question.verdict is verdict
    assert found.interval.low <= now - 0.9 <= found.interval.high
    assert found.draws % 16 == 0


def test_only_inputs_that_count_for_the_baseline_are_compared() -> None:
    counts = np.arange(INPUTS) % 2 == 0
    test = MeanTest(0.475, 0.995, 0.025)
    question = PairedQuestion(test, np.full(INPUTS, 0.9), counts, 1)
    ask(question, np.where(counts, 0.9, 0.0))
    seen = question.read().draws
    assert question.verdict is not Verdict.VIOLATED
    assert seen <= INPUTS // 2


def test_the_level_of_a_set_is_read_through_its_worst_noise() -> None:
    noise = Contaminated(1.0, 0.05, "tv")
    question = LevelQuestion(NoiseSetTest(noise, 0.9, 0.995))
    ask(question, np.ones(INPUTS), draws=16)
    found = question.read()
    assert found.value == pytest.approx(0.95)
    assert found.interval.low <= 0.95 == pytest.approx(found.interval.high)
    assert question.verdict is Verdict.HOLDS


@settings(max_examples=30)
@given(st.floats(0.05, 0.95), st.integers(0, 1000))
def test_the_bounds_of_a_mean_agree_with_its_verdict(at_least: float, seed: int) -> None:
    test = MeanTest(at_least, 0.95, 0.05)
    random = np.random.default_rng(seed)
    for _ in range(5):
        test.update(random.beta(2, 2, 50))
    bounds = test.bounds()
    assert (test.verdict is Verdict.HOLDS) == (bounds.low >= at_least - 1e-6)
    assert (test.verdict is Verdict.VIOLATED) == (bounds.high <= at_least + 1e-6)
