"""From counts to what holds at least: rows, errors by simulation, and order."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nppr.errors import SpecError, SplitError
from nppr.statistics.binomial import clopper_pearson_upper
from nppr.statistics.bounds import at_least, at_least_together
from nppr.types import Claim, Direction, Evaluate, Fit, FloatArray, IntArray, Metric, Tally

RATIOS = (1.0, 2.0, 5.0, 10.0)
Law = Callable[[np.random.Generator, int], FloatArray]


def tally(wrong: IntArray, draws: int) -> Tally[Evaluate]:
    return Tally(
        kind=Evaluate,
        indices=np.arange(len(wrong)),
        labels=np.zeros(len(wrong), np.int64),
        clean_correct=np.ones(len(wrong), bool),
        right=draws - wrong,
        draws=draws,
        calls=len(wrong) * draws,
        micro_batch=8,
    )


KNOWN = tally(np.array([0, 0, 1, 4, 20]), 20)


def test_there_are_two_lower_bounds_and_an_estimate() -> None:
    here, everywhere, estimate = at_least(KNOWN, 2, 0.9)
    assert (here.claim, everywhere.claim) == (Claim.TEST_SET, Claim.POPULATION)
    assert (here.method, everywhere.method) == ("exact", "betting")
    for row in (here, everywhere):
        assert row.metric is Metric.BOUND
        assert row.direction is Direction.LOWER_BOUND
        assert (row.low, row.high) == (row.value, 1.0)
        assert 0 <= row.value < estimate.value
    assert (estimate.metric, estimate.direction) == (Metric.INFIMUM, Direction.ESTIMATE)
    assert (estimate.claim, estimate.method) == (Claim.POPULATION, "bootstrap")
    assert estimate.low < estimate.value < estimate.high
    for row in (here, everywhere, estimate):
        assert (row.inputs, row.draws, row.calls) == (5, 20, 100)
        assert (row.confidence, row.split, row.flags) == (0.9, "evaluate", ())


@pytest.mark.parametrize(
    ("c", "value"),
    [(1, (1 + 1 + 0.95 + 0.8 + 0) / 5), (2, (1 + 1 + 0.9 + 0.6) / 5), (10, (1 + 1 + 0.5) / 5)],
)
def test_the_estimate_by_hand(c: float, value: float) -> None:
    assert at_least(KNOWN, c, 0.95)[-1].value == pytest.approx(value)


def test_a_ratio_of_1_is_the_exact_bound_of_all_draws_together() -> None:
    here, *_ = at_least(KNOWN, 1, 0.95)
    assert here.value == 1 - float(clopper_pearson_upper(np.array([25]), 100, 0.95)[0])


def test_without_failures_the_bound_has_a_closed_form() -> None:
    here, *_ = at_least(tally(np.zeros(50, np.int64), 20), 5, 0.95)
    assert here.value == pytest.approx(1 - 5 * (1 - (0.05 / 3) ** (1 / 1000)))


def test_the_estimate_is_too_high_on_average() -> None:
    """The infimum is convex in p: summed exactly over the counts of 10 draws."""
    p, draws, c = 0.15, 10, 5.0
    wrong = np.arange(draws + 1)
    values = [at_least(tally(np.array([k]), draws), c, 0.95)[-1].value for k in wrong]
    expected = float((stats.binom.pmf(wrong, draws, p) * values).sum())
    assert expected > 1 - c * p + 0.03


def test_the_estimate_falls_with_the_ratio() -> None:
    values = [at_least(KNOWN, c, 0.95)[-1].value for c in (1, 1.01, 1.5, 2, 5, 10, 20, 1e9)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(2 / 5)


COUNTS = {
    "all robust": np.zeros(100, np.int64),
    "alike": np.full(100, 2),
    "of all kinds": np.random.default_rng(0).binomial(100, np.linspace(0, 0.3, 100)),
    "fragile or robust": np.repeat([0, 100], [50, 50]),
}


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("claim", [0, 1])
def test_bounds_fall_with_the_ratio(claim: int, counts: str) -> None:
    """What holds for all noise of a larger ratio holds for all noise of a smaller one."""
    found = tally(COUNTS[counts], 100)
    rows = at_least_together(found, RATIOS, 0.95)
    values = [rows[c][claim].value for c in RATIOS]
    assert values == sorted(values, reverse=True)
    alone = [at_least(found, c, 1 - 0.05 / len(RATIOS))[claim].value for c in RATIOS]
    assert all(value >= each for value, each in zip(values, alone, strict=True))
    assert {row.confidence for each in rows.values() for row in each} == {0.95}


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 30), st.integers(2, 40), st.floats(1, 30), st.data())
def test_bounds_are_shares_below_the_estimate(
    inputs: int, draws: int, c: float, data: st.DataObject
) -> None:
    wrong = data.draw(st.lists(st.integers(0, draws), min_size=inputs, max_size=inputs))
    here, everywhere, estimate = at_least(tally(np.array(wrong), draws), c, 0.95)
    for row in (here, everywhere):
        assert 0 <= row.value <= estimate.value + 1e-9
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1


def tiny(rng: np.random.Generator, inputs: int) -> FloatArray:
    return rng.uniform(0, 0.002, inputs)


def bimodal(rng: np.random.Generator, inputs: int) -> FloatArray:
    fragile = rng.random(inputs) < 0.2
    return np.where(fragile, rng.uniform(0.5, 1, inputs), rng.uniform(0, 0.01, inputs))


def skewed(rng: np.random.Generator, inputs: int) -> FloatArray:
    return rng.beta(0.5, 5, inputs)


TRUTHS: dict[Law, Callable[[float], float]] = {
    tiny: lambda c: 1 - 0.001 * c,
    bimodal: lambda c: 0.8 * (1 - 0.005 * c) + 0.2 * (0.25 if c == 1 else 0),
    skewed: lambda c: float(
        stats.beta.cdf(1 / c, 0.5, 5) - c * 0.5 / 5.5 * stats.beta.cdf(1 / c, 1.5, 5)
    ),
}
"""The expectation of max(0, 1 - c p) for the ratios above."""


@pytest.mark.parametrize("c", RATIOS)
@pytest.mark.parametrize("law", TRUTHS)
def test_bounds_above_the_truth_are_rare(law: Law, c: float) -> None:
    """`benchmarks/bound.py` in small."""
    rng = np.random.default_rng(1)
    repeats, missed = 60, np.zeros(2)
    for seed in range(repeats):
        inputs, draws = int(rng.integers(200, 501)), int(rng.integers(16, 101))
        p = law(rng, inputs)
        here, everywhere, _ = at_least(tally(rng.binomial(draws, p), draws), c, 0.95, seed)
        missed += here.value > np.maximum(0, 1 - c * p).mean(), everywhere.value > TRUTHS[law](c)
    assert max(missed) / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)


def test_the_seed_resamples() -> None:
    first, again, other = (at_least(KNOWN, 2, 0.95, seed)[-1] for seed in (0, 0, 1))
    assert first == again
    assert (first.low, first.high) != (other.low, other.high)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, 2.0, math.nan])
def test_bad_confidence_is_named(confidence: float) -> None:
    with pytest.raises(SpecError, match="`confidence` must lie in"):
        at_least(KNOWN, 2, confidence)


@pytest.mark.parametrize("c", [1.0, 2.0])
def test_a_confidence_that_is_too_small_is_named_as_it_was_given(c: float) -> None:
    with pytest.raises(SpecError, match=r"`confidence` must be at least .*, got 0.2\."):
        at_least(KNOWN, c, 0.2)


@pytest.mark.parametrize("c", [0.5, -1.0, math.nan])
def test_bad_ratios_are_named(c: float) -> None:
    with pytest.raises(SpecError, match="`c` must be a number of at least 1"):
        at_least(KNOWN, c, 0.95)


def test_no_clean_correct_input_is_named() -> None:
    with pytest.raises(SpecError, match="right without noise"):
        at_least(replace(KNOWN, clean_correct=np.zeros(5, bool)), 2, 0.95)


def test_tallies_of_other_splits_cannot_be_reported() -> None:
    with pytest.raises(SplitError, match="'fit'"):
        at_least(replace(KNOWN, kind=Fit), 2, 0.95)  # type: ignore[arg-type]
