"""The upper end of a bracket: rows, exactness, and errors by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nppr.core.tally import Claim, Direction, Evaluate, IntArray, Metric, Tally
from nppr.errors import SpecError
from nppr.statistics.betting import betting
from nppr.statistics.bracket_ends import estimate_upper_ends
from nppr.statistics.intervals import clopper_pearson


def tally(correct: IntArray, draws: int) -> Tally[Evaluate]:
    places = np.arange(len(correct))
    clean = np.ones(len(correct), bool)
    return Tally(Evaluate, places, places * 0, clean, correct, draws, len(correct) * draws, 8)


def test_an_end_for_the_test_set_and_one_for_the_population() -> None:
    known = tally(np.array([20, 18, 5, 11]), 20)
    everywhere, here = estimate_upper_ends(known, 0.9)
    exact = clopper_pearson(np.array([54]), 80, 0.9)[:, 0]
    assert (here.low, here.high) == pytest.approx(tuple(exact))
    assert (everywhere.low, everywhere.high) == tuple(vars(betting(known.rates, 0.9)).values())
    assert (here.claim, everywhere.claim) == (Claim.TEST_SET, Claim.POPULATION)
    for row in (here, everywhere):
        assert (row.metric, row.direction) == (Metric.NPPR, Direction.UPPER_BOUND)
        assert row.value == pytest.approx(54 / 80)
        assert row.confidence == 0.9


def test_brackets_that_hold_together_share_the_error() -> None:
    known = tally(np.array([20, 18, 5, 11]), 20)
    for alone, one_of_four in zip(
        estimate_upper_ends(known, 0.975), estimate_upper_ends(known, 0.9, 4), strict=True
    ):
        assert one_of_four.high == pytest.approx(alone.high)
        assert one_of_four.confidence == 0.9


def test_no_clean_correct_input_is_named() -> None:
    known = tally(np.array([1, 2]), 3)
    known.clean_correct[:] = False
    with pytest.raises(SpecError, match="at least one clean-correct input"):
        estimate_upper_ends(known, 0.95)


@pytest.mark.slow
def test_upper_ends_below_the_truth_are_as_rare_as_half_of_the_error() -> None:
    rng, repeats, missed = np.random.default_rng(0), 600, np.zeros(2)
    for seed in range(repeats):
        p = 1 - rng.beta(0.5, 3, 60)
        everywhere, here = estimate_upper_ends(tally(rng.binomial(10, p), 10), 0.8, 1, seed)
        missed += here.high < p.mean(), everywhere.high < 1 - 0.5 / 3.5
    assert missed.max() / repeats <= 0.1 + 3 * math.sqrt(0.09 / repeats)
