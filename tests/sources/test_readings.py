"""Which numbers are read off the tally of a source."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nppr.core.budget import Budget
from nppr.core.tally import Claim, Direction, Estimate, Evaluate, Metric, Tally
from nppr.sources import JPEG, PGD, Source, Uniform, WeakAdversary
from nppr.statistics.estimates import (
    GAMMAS,
    estimate_adversarial,
    estimate_corrupted,
    estimate_normalised,
    estimate_probabilistic,
)
from nppr.statistics.lower_bounds import PerInputDraws, estimate_bounds_jointly
from nppr.statistics.noise_sets import STATED_SETS

BUDGET = Budget.linf(0.1)


def tally(correct: list[int], draws: int) -> Tally[Evaluate]:
    """Five inputs, of which the last is wrong without noise."""
    return Tally(
        kind=Evaluate,
        indices=np.arange(5),
        labels=np.zeros(5, np.int64),
        clean_correct=np.array([True, True, True, True, False]),
        correct=np.array(correct),
        draws=draws,
        calls=5 * draws,
        micro_batch=8,
    )


ONCE = tally([1, 0, 1, 1, 1], 1)
OFTEN = tally([10, 5, 0, 10, 2], 10)


def read(source: Source, found: Tally[Evaluate], seed: int = 0) -> list[Estimate]:
    return source.read(found, ONCE, 0.9, seed)


def test_an_attack_has_ar_and_the_normalised_accuracy() -> None:
    ar, relative = read(PGD(BUDGET, steps=3), ONCE)
    assert (ar.metric, ar.value) == (Metric.AR, 0.75)
    assert ar == estimate_adversarial(ONCE, 0.9)
    assert relative.metric is Metric.NORMALISED_ACCURACY
    assert relative.value == pytest.approx((4 / 5) / (4 / 5))
    assert ar.direction is relative.direction is Direction.UPPER_BOUND


def test_a_corruption_has_a_fraction_that_is_no_bound() -> None:
    fraction, relative = read(JPEG(severity=3), ONCE)
    assert (fraction.metric, fraction.value) == (Metric.CORRUPTION, 0.75)
    assert fraction == estimate_corrupted(ONCE, 0.9)
    assert fraction.direction is relative.direction is Direction.ESTIMATE


@pytest.mark.parametrize("source", [Uniform(BUDGET), WeakAdversary(BUDGET)])
def test_noise_has_pr_with_five_intervals(source: Source) -> None:
    rows = read(source, OFTEN)
    assert rows[:5] == estimate_probabilistic(OFTEN, 0.9)
    assert rows[5] == estimate_normalised(OFTEN, 0.9)
    assert [(row.metric, row.gamma) for row in rows[6:10]] == [
        (Metric.PROB_ACC, gamma) for gamma in GAMMAS
    ]
    assert [row.metric for row in rows[10:]] == [Metric.BOUND] * (8 if source.is_fixed_noise else 0)


def test_fixed_noise_is_read_as_bounds_that_hold_together() -> None:
    bounds = read(Uniform(BUDGET), OFTEN)[10:]
    assert bounds == [
        replace(row, reference="uniform")
        for row in estimate_bounds_jointly(PerInputDraws(OFTEN), STATED_SETS, 0.9, infima=False)
    ]
    assert [row.claim for row in bounds] == [Claim.TEST_SET, Claim.POPULATION] * 4
    sets = [(row.noise_set, row.density_ratio, row.size) for row in bounds[::2]]
    expected = (
        ("ratio", 2, None),
        ("ratio", 10, None),
        ("contaminated", 2, 0.01),
        ("tv", None, 0.05),
    )
    assert sets == list(expected)
    assert all(row.sees_input for row in bounds)


def test_bounds_are_read_at_any_confidence() -> None:
    assert len(Uniform(BUDGET).read(OFTEN, OFTEN, 0.1, 0)) == 18


def test_learned_noise_has_nppr_which_is_an_upper_bound() -> None:
    class Found(Uniform):
        metric = Metric.NPPR

    rows = read(Found(BUDGET), OFTEN)
    last = [Metric.NORMALISED_ACCURACY, *[Metric.PROB_ACC] * 4]
    assert [row.metric for row in rows] == [Metric.NPPR] * 5 + last
    assert {row.direction for row in rows} == {Direction.UPPER_BOUND}


def test_the_seed_of_the_run_resamples() -> None:
    first, again, other = (
        [(row.low, row.high) for row in read(Uniform(BUDGET), OFTEN, seed)] for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other
