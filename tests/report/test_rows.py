"""Which rows of a report the tally of a source becomes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers import Stray
from nppr.budget import Budget
from nppr.rare import Rare, Status, combined
from nppr.report.rows import rare_rows, rows_of
from nppr.report.schema import Result
from nppr.sources import JPEG, PGD, Bound, Stress, Uniform, WeakAdversary
from nppr.statistics.density_ratio import at_least_together
from nppr.statistics.estimates import GAMMAS, adversarial, corrupted, normalised, probabilistic
from nppr.tally import Claim, Direction, Evaluate, Metric, PerturbationSource, Tally

BUDGET = Budget.linf(0.1)


def tally(right: list[int], draws: int) -> Tally[Evaluate]:
    """Five inputs, of which the last is wrong without noise."""
    return Tally(
        kind=Evaluate,
        indices=np.arange(5),
        labels=np.zeros(5, np.int64),
        clean_correct=np.array([True, True, True, True, False]),
        correct=np.array(right),
        draws=draws,
        calls=5 * draws,
        micro_batch=8,
    )


ONCE = tally([1, 0, 1, 1, 1], 1)
OFTEN = tally([10, 5, 0, 10, 2], 10)
LOSSES = np.array([0.1, 0.2, 0.3, 0.4, 3.0])
CLEAN = replace(ONCE, sums=np.log(LOSSES)[:, None])


def read(source: PerturbationSource, found: Tally[Evaluate]) -> list[Result]:
    return rows_of(source, found, CLEAN, 0.9, 0)


def test_an_attack_has_ar_and_the_normalised_accuracy() -> None:
    ar, relative = read(PGD(BUDGET, steps=3), ONCE)
    assert (ar.source, ar.metric, ar.value) == ("pgd:steps=3", Metric.AR, 0.75)
    assert (ar.low, ar.high) == (adversarial(ONCE, 0.9).low, adversarial(ONCE, 0.9).high)
    assert relative.metric is Metric.NORMALISED_ACCURACY
    assert relative.value == pytest.approx((4 / 5) / (4 / 5))
    assert ar.direction is relative.direction is Direction.UPPER_BOUND


def test_a_corruption_has_a_share_that_is_no_bound() -> None:
    share, relative = read(JPEG(severity=3), ONCE)
    assert (share.source, share.metric) == ("jpeg:severity=3", Metric.CORRUPTION)
    assert (share.low, share.value, share.high) == (
        corrupted(ONCE, 0.9).low, 0.75, corrupted(ONCE, 0.9).high,
    )  # fmt: skip
    assert share.direction is relative.direction is Direction.ESTIMATE


@pytest.mark.parametrize("source", [Uniform(BUDGET), WeakAdversary(BUDGET), Stray(BUDGET, 0.0)])
def test_noise_has_pr_with_five_intervals(source: PerturbationSource) -> None:
    rows = read(source, OFTEN)
    pr, relative, accurate = rows[:5], rows[5], rows[6:]
    assert [(row.metric, row.gamma) for row in accurate] == [
        (Metric.PROB_ACC, gamma) for gamma in GAMMAS
    ]
    assert [row.method for row in pr] == [row.method for row in probabilistic(OFTEN, 0.9)]
    assert len(pr) == 5
    for row, expected in zip(pr, probabilistic(OFTEN, 0.9), strict=True):
        assert (row.source, row.metric) == (source.name, Metric.PR)
        assert (row.low, row.value, row.high) == (expected.low, expected.value, expected.high)
    assert relative.value == normalised(OFTEN, 0.9).value


def test_learned_noise_has_nppr_which_is_a_bound() -> None:
    source = Stray(BUDGET, 0.0, name="nppr")
    source.metric = Metric.NPPR
    rows = read(source, OFTEN)
    last = [Metric.NORMALISED_ACCURACY, *[Metric.PROB_ACC] * 4]
    assert [row.metric for row in rows] == [Metric.NPPR] * 5 + last
    assert {row.direction for row in rows} == {Direction.UPPER_BOUND}


def test_stress_has_two_rows_for_every_order() -> None:
    """Losses of 2 and 4 in one draw each, for all inputs: (2^q/2 + 4^q/2)^(1/q)."""
    stress = Stress(BUDGET, q="1+2+1000")
    orders = np.array(stress.orders)
    sums = np.logaddexp(orders * np.log(2), orders * np.log(4))
    rows = read(stress, replace(tally([1] * 5, 2), sums=np.tile(sums, (5, 1))))
    assert [row.source for row in rows] == [f"stress:q={q}" for q in (1, 1, 2, 2, 1000, 1000)]
    assert [row.metric for row in rows] == [Metric.STRESS, Metric.NORMALISED_STRESS] * 3
    expected = [3.0, np.sqrt(10), 4 * 0.5 ** (1 / 1000)]
    assert [row.value for row in rows[::2]] == pytest.approx(expected)
    assert [row.value for row in rows[1::2]] == pytest.approx([v / 0.8 for v in expected])
    for row in rows:
        assert (row.inputs, row.draws, row.confidence) == (5, 2, 0.9)
        assert row.direction is Direction.ESTIMATE


def test_a_bound_has_three_rows_for_every_ratio() -> None:
    """Two lower bounds, one for each claim, and the estimate of the infimum."""
    rows = read(Bound(BUDGET, "laplace", "1+4"), OFTEN)
    name = "bound:reference=laplace:ratio=1+4"
    assert [row.source for row in rows] == [f"{name}:c=1"] * 3 + [f"{name}:c=4"] * 3
    assert [row.metric for row in rows] == [Metric.BOUND, Metric.BOUND, Metric.INFIMUM] * 2
    assert [row.claim for row in rows[:2]] == [Claim.TEST_SET, Claim.POPULATION]
    lower = [Direction.LOWER_BOUND, Direction.LOWER_BOUND, Direction.ESTIMATE]
    assert [row.direction for row in rows] == lower * 2
    # 10, 5, 0 and 10 of 10 draws are right.
    assert [row.value for row in rows[2::3]] == [2.5 / 4, 2 / 4]
    expected = [row for each in at_least_together(OFTEN, (1, 4), 0.9).values() for row in each]
    for row, each in zip(rows, expected, strict=True):
        assert (row.low, row.value, row.high) == (each.low, each.value, each.high)
        assert (row.inputs, row.draws, row.confidence) == (4, 10, 0.9)
        assert row.gamma is None


def test_every_ratio_has_rows_of_its_own_name() -> None:
    """However close two ratios are."""
    rows = read(Bound(BUDGET, ratio="1+1.0000001+123456+123457"), OFTEN)
    assert len({row.source for row in rows}) == 4


def test_the_seed_of_the_run_resamples() -> None:
    first, again, other = (
        [(row.low, row.high) for row in rows_of(Uniform(BUDGET), OFTEN, CLEAN, 0.9, seed)]
        for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_splitting_takes_over_where_no_draw_failed() -> None:
    rare = Rare(
        source="uniform",
        positions=np.array([0]),
        indices=np.array([0]),
        log_p=np.log([1e-3]),
        log_low=np.log([5e-4]),
        log_high=np.log([2e-3]),
        spread=np.array([0.1]),
        calls=np.array([700]),
        status=(Status.FOUND,),
        particles=100,
        replicates=5,
        confidence=0.95,
    )
    known = combined(OFTEN, rare)
    (row,) = rare_rows(Uniform(BUDGET), OFTEN, rare, known, 0.95)
    assert row.value == pytest.approx(1 - (1e-3 + 0.5 + 1.0 + 0.0) / 4)
    half = 1.959964 * np.sqrt(np.square(known.errors[:4]).sum()) / 4
    assert row.value is not None
    assert (row.low, row.high) == pytest.approx((row.value - half, row.value + half))
    assert row.calls == OFTEN.calls + 700
    assert (row.metric, row.claim, row.method) == (Metric.PR, Claim.TEST_SET, "draws + splitting")
    one, two = rare_rows(Bound(BUDGET, ratio="1+100"), OFTEN, rare, known, 0.95)
    assert one.value == pytest.approx(row.value)
    assert two.value == pytest.approx((0.9 + 0 + 0 + 1.0) / 4)
    assert two.high is not None
    assert two.low is not None
    assert two.high - two.low == pytest.approx(2 * 1.959964 * 100 * known.errors[0] / 4, rel=1e-6)
