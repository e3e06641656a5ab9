"""The betting interval: guaranteed, and never wider than empirical Bernstein where compared."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nppr.core.tally import FloatArray
from nppr.errors import SpecError
from nppr.statistics.betting import (
    CAP,
    betting,
    betting_lower,
    betting_sequence,
    expected_variance,
    log_capital,
    plug_in_bets,
    shuffle_rows,
)
from nppr.statistics.intervals import Interval, empirical_bernstein

Population = Callable[[np.random.Generator, int], FloatArray]


def bernoulli(p: float) -> Population:
    return lambda rng, n: rng.binomial(1, p, n).astype(float)


def clustered(a: float, b: float) -> Population:
    """Shares of 16 draws, of inputs that are mostly robust or mostly not."""
    return lambda rng, n: rng.binomial(16, rng.beta(a, b, n)) / 16


POPULATIONS: dict[str, tuple[Population, float]] = {
    "bernoulli-0.01": (bernoulli(0.01), 0.01),
    "bernoulli-0.1": (bernoulli(0.1), 0.1),
    "bernoulli-0.5": (bernoulli(0.5), 0.5),
    "bernoulli-0.9": (bernoulli(0.9), 0.9),
    "bernoulli-0.99": (bernoulli(0.99), 0.99),
    "beta-0.2": (lambda rng, n: rng.beta(0.2, 0.2, n), 0.5),
    "beta-5-1": (lambda rng, n: rng.beta(5, 1, n), 5 / 6),
    "constant-0": (lambda _, n: np.zeros(n), 0.0),
    "constant-0.3": (lambda _, n: np.full(n, 0.3), 0.3),
    "constant-1": (lambda _, n: np.ones(n), 1.0),
    "bimodal-0.5": (clustered(0.1, 0.1), 0.5),
    "bimodal-0.9": (clustered(0.27, 0.03), 0.9),
}


def doubts(x: FloatArray, bets: FloatArray, mean: float, error: float) -> bool:
    """Whether these bets, in this order, rule out that the mean is at most this."""
    return log_capital(x[None], bets[None], mean) > math.log(1 / error)


def width(found: Interval) -> float:
    return found.high - found.low


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
def test_it_covers_at_least_95_percent(population: str) -> None:
    """Each of the two ends misses at most 2.5 %, judged at three standard errors."""
    draw, truth = POPULATIONS[population]
    rng = np.random.default_rng(1)
    for n in (10, 100):
        repeats = 200
        found = [betting(draw(rng, n), 0.95, seed) for seed in range(repeats)]
        slack = 3 * math.sqrt(0.025 * 0.975 / repeats)
        assert np.mean([at.low > truth for at in found]) <= 0.025 + slack
        assert np.mean([at.high < truth for at in found]) <= 0.025 + slack


def test_bets_that_look_ahead_would_not_cover() -> None:
    """That the coverage above is a test: bets that know what they bet on win always."""
    rng = np.random.default_rng(2)
    x = rng.binomial(1, 0.5, 100).astype(float)
    knowing = np.where(x > 0.5, 1.0, 0.0)
    assert doubts(x, knowing, 0.5, 0.025)


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("n", [2, 5, 12, 20, 50, 100, 400, 2000, 10_000])
def test_it_is_never_wider_than_empirical_bernstein(population: str, n: int) -> None:
    rng = np.random.default_rng(n)
    for seed in range(4 if n <= 400 else 1):
        x = POPULATIONS[population][0](rng, n)
        for confidence in (0.9, 0.99):
            assert width(betting(x, confidence, seed)) <= width(empirical_bernstein(x, confidence))


def test_it_is_far_narrower_on_few_or_steady_numbers() -> None:
    x = np.random.default_rng(3).beta(5, 1, 100)
    assert width(betting(x, 0.95)) < 0.4 * width(empirical_bernstein(x, 0.95))


@pytest.mark.parametrize("n", [10, 1000])
def test_all_ones_by_hand(n: int) -> None:
    """All bets are won, so the capital is a product of known factors at the bound it gives."""
    low = betting(np.ones(n), 0.95).low
    left, mean = 0.25, 0.5
    capital = 1.0
    for seen in range(1, n + 1):
        bet = min(math.sqrt(2 * math.log(40) / (left / seen * n)), CAP / low)
        capital *= 1 + bet * (1 - low)
        mean = (0.5 + seen) / (seen + 1)
        left += (1 - mean) ** 2
    assert capital == pytest.approx(40, rel=1e-6)
    assert betting(np.ones(n), 0.95).high == 1.0
    assert betting(np.zeros(n), 0.95) == Interval(0.0, 1 - low)


def test_the_end_is_rounded_outwards() -> None:
    """At the bound the capital suffices, just above it does not."""
    x = np.random.default_rng(4).random(300)
    rows = shuffle_rows(x, 0)
    bets = plug_in_bets(rows, 0.05)
    low = betting_lower(x, 0.95)
    assert log_capital(rows, bets, low) >= math.log(20)
    assert log_capital(rows, bets, low + 1e-6) < math.log(20)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(1e-3, 0.5))
def test_the_capital_falls_in_the_candidate(numbers: list[float], error: float) -> None:
    x = np.array(numbers)
    candidates = np.linspace(0.01, 1, 60)
    rows = shuffle_rows(x, 0)
    bets = plug_in_bets(rows, error)
    assert np.all(np.diff([log_capital(rows, bets, m) for m in candidates]) <= 1e-9)


def test_orders_are_of_the_same_numbers() -> None:
    x = np.random.default_rng(13).random(50)
    rows = shuffle_rows(x, 3)
    assert np.array_equal(np.sort(rows), np.tile(np.sort(x), (len(rows), 1)))
    assert len(np.unique(rows, axis=0)) == len(rows) == 8
    assert np.array_equal(rows, shuffle_rows(x, 3))
    assert not np.array_equal(rows, shuffle_rows(x, 4))


def test_the_seed_matters_little() -> None:
    x = clustered(0.18, 0.02)(np.random.default_rng(14), 400)
    found = [betting(x, 0.95, seed) for seed in range(40)]
    mean_width = np.mean([width(at) for at in found])
    assert 0 < np.std([at.low for at in found]) < mean_width / 40
    assert 0 < np.std([at.high for at in found]) < mean_width / 40


def test_bets_know_the_past_only() -> None:
    x = np.random.default_rng(5).random(50)
    for at in (0, 20, 49):
        changed = x.copy()
        changed[at:] = 1 - changed[at:]
        before, after = plug_in_bets(x, 0.1), plug_in_bets(changed, 0.1)
        assert np.array_equal(before[: at + 1], after[: at + 1])


def test_the_one_sided_bound_is_tighter_and_the_end_is_at_half_the_error() -> None:
    x = np.random.default_rng(6).beta(2, 3, 200)
    both = betting(x, 0.95)
    assert both.low < betting_lower(x, 0.95) < x.mean()
    assert both.low == pytest.approx(betting_lower(x, 0.975), abs=1e-9)


@pytest.mark.slow
def test_the_one_sided_bound_covers() -> None:
    draw, truth = POPULATIONS["bimodal-0.9"]
    rng = np.random.default_rng(7)
    samples = [draw(rng, 100) for _ in range(400)]
    slack = 3 * math.sqrt(0.1 * 0.9 / len(samples))
    assert np.mean([betting_lower(x, 0.9) > truth for x in samples]) <= 0.1 + slack


@pytest.mark.slow
def test_a_sorted_table_does_no_harm() -> None:
    """In sorted order the bets would win by knowing what comes; in a drawn order they do not."""
    rng = np.random.default_rng(8)
    repeats = 200
    missed_sorted = missed = 0
    for seed in range(repeats):
        x = np.sort(rng.binomial(1, 0.5, 100).astype(float))
        missed_sorted += doubts(1 - x, plug_in_bets(1 - x, 0.025), 0.5, 0.025)
        found = betting(x, 0.95, seed)
        missed += not found.low <= 0.5 <= found.high
    assert missed_sorted / repeats > 0.5
    assert missed / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)


def test_it_holds_the_mean_and_grows_with_confidence() -> None:
    rng = np.random.default_rng(9)
    for seed in range(50):
        x = rng.random(60) ** 2
        narrow, wide = betting(x, 0.5, seed), betting(x, 0.99, seed)
        assert 0 <= wide.low <= narrow.low <= x.mean() <= narrow.high <= wide.high <= 1


def test_it_mirrors() -> None:
    x = np.random.default_rng(10).beta(0.5, 2, 70)
    there, back = betting(x, 0.95), betting(1 - x, 0.95)
    assert there.low == pytest.approx(1 - back.high, abs=1e-9)
    assert there.high == pytest.approx(1 - back.low, abs=1e-9)


def test_ten_thousand_inputs_take_less_than_a_second_of_one_core() -> None:
    x = np.random.default_rng(11).random(10_000)
    start = process_time()
    betting(x, 0.95)
    assert process_time() - start < 1


def test_a_sequence_of_one_round_by_hand() -> None:
    """All ones: every bet is won, so the capital is a product of known factors at the bound."""
    n, aim = 300, 0.02
    low = betting_sequence([np.ones(n)], 0.95, aim).low
    bets = np.minimum(aim / (expected_variance(np.ones(n)) + aim), CAP / low)
    assert np.prod(1 + bets * (1 - low)) == pytest.approx(40, rel=1e-6)
    assert betting_sequence([np.zeros(n)], 0.95, aim) == Interval(0.0, 1 - low)


def test_a_sequence_is_narrow_near_its_aim() -> None:
    """Where it reaches its aim it is about as wide as the interval for one size."""
    x = clustered(0.18, 0.02)(np.random.default_rng(15), 3000)
    rounds = np.split(x, [256, 512, 1024, 2048])
    found, fixed = betting_sequence(rounds, 0.95, 0.02), betting(x, 0.95)
    assert found.low < x.mean() < found.high
    assert width(found) < 1.1 * width(fixed)


def test_bets_of_a_round_know_earlier_rounds_only() -> None:
    """The order within a round does not matter, nor whether a round is empty."""
    x = np.random.default_rng(16).random(100)
    once = betting_sequence([x[:60], x[60:]], 0.95, 0.1)
    assert betting_sequence([x[:60], x[:0], x[60:]], 0.95, 0.1) == once
    assert betting_sequence([x], 0.95, 0.1) != once


@pytest.mark.slow
@pytest.mark.parametrize("population", ["bernoulli-0.99", "bimodal-0.9", "bimodal-0.5", "beta-5-1"])
def test_a_sequence_covers_at_all_rounds_together(population: str) -> None:
    """Looks at 7 rounds; an interval made for one look, taken as often, would miss more often."""
    draw, truth = POPULATIONS[population]
    rng = np.random.default_rng(17)
    repeats, ends = 100, [32 * 2**k for k in range(7)]
    missed = 0
    for seed in range(repeats):
        rounds = np.split(draw(rng, ends[-1]), ends[:-1])
        looks = [betting_sequence(rounds[: k + 1], 0.9, 0.02, seed) for k in range(len(rounds))]
        missed += any(at.low > truth or at.high < truth for at in looks)
    assert missed / repeats <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / repeats)


@pytest.mark.parametrize("x", [[], [1.5], [-0.1, 0.5], [float("nan")]])
def test_numbers_outside_are_named(x: list[float]) -> None:
    with pytest.raises(SpecError, match="`x`"):
        betting(np.array(x), 0.95)
    with pytest.raises(SpecError, match="`x`"):
        betting_sequence([np.array(x)], 0.95, 0.01)
