"""How many inputs and draws a wanted precision takes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from nppr.blocks import Blocks
from nppr.run.precision import (
    FIRST,
    GrowingStore,
    MemoryStore,
    Round,
    judge,
    whole_blocks,
)
from nppr.tally import BoolArray, Evaluate, FloatArray, IntArray, Tally

Z = float(norm.ppf(0.975))


def tally(right: IntArray, draws: int, clean: BoolArray | None = None) -> Tally[Evaluate]:
    inputs = len(right)
    return Tally(
        kind=Evaluate,
        indices=np.arange(inputs),
        labels=np.zeros(inputs, np.int64),
        clean_correct=np.ones(inputs, bool) if clean is None else clean,
        correct=right,
        draws=draws,
        calls=inputs * draws,
        micro_batch=1,
    )


def drawn(p: FloatArray, draws: int, seed: int = 0) -> Tally[Evaluate]:
    return tally(np.random.default_rng(seed).binomial(draws, p), draws)


def test_more_inputs_come_first() -> None:
    p = np.random.default_rng(1).beta(2, 2, 256)
    need = judge({"a": drawn(p, 16)}, Round(256, 16), 100_000, 0.01, 0.95)
    expected = (p.var() + (p * (1 - p)).mean() / 16) * (Z / 0.01) ** 2
    assert need.following is not None
    assert need.following.draws == 16
    assert need.inputs == pytest.approx(expected, rel=0.15)
    assert need.following.inputs == pytest.approx(1.05 * need.inputs, abs=2)
    assert not need.reached


def test_inputs_that_are_wrong_without_noise_are_counted_in() -> None:
    p = np.random.default_rng(1).beta(2, 2, 256)
    half = np.arange(256) % 2 == 0
    all_right = judge({"a": drawn(p, 16)}, Round(256, 16), 10**6, 0.01, 0.95)
    right = np.random.default_rng(0).binomial(16, p)
    half_right = judge({"a": tally(right, 16, half)}, Round(256, 16), 10**6, 0.01, 0.95)
    assert half_right.inputs == pytest.approx(2 * all_right.inputs, rel=0.2)


def test_draws_come_when_inputs_run_out_and_reach_it() -> None:
    p = np.full(300, 0.6)  # all of the variance is that of draws
    need = judge({"a": drawn(p, 16)}, Round(300, 16), 300, 0.01, 0.95)
    assert need.following is not None
    assert need.following.inputs == 300
    assert need.following.draws % 16 == 0
    more = judge({"a": drawn(p, need.following.draws)}, need.following, 300, 0.01, 0.95)
    assert more.widths["a"].half_width < need.widths["a"].half_width
    assert more.widths["a"].within == pytest.approx(0.24, abs=0.01)


def test_no_number_of_draws_helps_where_inputs_differ() -> None:
    p = np.repeat([0.0, 1.0], 150)
    need = judge({"a": drawn(p, 16)}, Round(300, 16), 300, 0.01, 0.95)
    assert need.following is None
    assert not need.reached
    assert need.inputs == pytest.approx(0.25 * (Z / 0.01) ** 2, rel=0.02)


def test_the_worst_source_decides() -> None:
    rng = np.random.default_rng(0)
    easy, hard = drawn(np.full(256, 0.99), 16), drawn(rng.beta(0.3, 0.3, 256), 16)
    alone = judge({"hard": hard}, FIRST, 10**6, 0.01, 0.95)
    both = judge({"easy": easy, "hard": hard}, FIRST, 10**6, 0.01, 0.95)
    assert both.inputs == alone.inputs


def test_a_mean_of_one_does_not_look_exact() -> None:
    perfect = tally(np.full(100, 16), 16)
    need = judge({"a": perfect}, Round(100, 16), 10**6, 0.01, 0.95)
    assert not need.reached
    assert need.widths["a"].half_width > 0.01


def test_the_wanted_width_is_reached_and_holds_the_truth() -> None:
    """The whole procedure on simulated inputs: coverage of the interval it ends with."""
    rng = np.random.default_rng(0)
    held, ends = [], []
    for seed in range(300):
        p, at = rng.beta(1.6, 0.4, 20_000), FIRST
        right = rng.binomial(16, p)
        while True:
            found = tally(right[: at.inputs], 16)
            need = judge({"a": found}, at, len(p), 0.02, 0.95)
            if need.following is None:
                break
            at = need.following
        assert need.reached, seed
        half = need.widths["a"].half_width
        held.append(abs(found.rates.mean() - 0.8) <= half)
        ends.append(half)
    assert max(ends) <= 0.02
    assert np.mean(ends) > 0.015  # it does not take many more inputs than needed
    assert 0.915 <= np.mean(held) <= 0.985  # 95 %, give or take 2.8 standard errors


def test_draws_are_whole_blocks() -> None:
    assert [whole_blocks(n) for n in (1, 16, 17, 100)] == [16, 16, 32, 112]


def test_a_growing_store_keeps_every_row_in_its_place() -> None:
    whole = MemoryStore()
    first = GrowingStore(whole, np.array([1, 4]), 6)
    assert first.load(2) is None
    blocks = Blocks(np.array([3, 5]), np.array([1, 1]), np.array([4, 4]), np.array([[0.5], [1.5]]))
    first.save(blocks, now=True)
    larger = GrowingStore(whole, np.array([0, 1, 4]), 6)
    found = larger.load(3)
    assert found is not None
    assert found.correct.tolist() == [0, 3, 5]
    assert found.finished.tolist() == [0, 1, 1]
    assert found.calls.tolist() == [0, 4, 4]
    assert found.sums[1:].tolist() == [[0.5], [1.5]]
    found.correct[0] = 9
    larger.save(found, now=True)
    again = GrowingStore(whole, np.arange(6), 6).load(6)
    assert again is not None
    assert again.correct.tolist() == [9, 3, 0, 0, 5, 0]
