from __future__ import annotations

import math

import numpy as np
import pytest

from nppr.rare import Levels, Status
from nppr.rare.levels import MOVES

FLOOR = math.log(1e-12)


def levels(limit: int = 10_000, floor: float = FLOOR) -> Levels:
    return Levels(floor, limit)


def test_the_best_survive_and_log_p_adds_up() -> None:
    state = levels()
    margins = np.linspace(-10.0, -1.0, 100)
    survivors = state.settle(margins)
    assert len(survivors) == 100 // MOVES
    assert state.level == margins[79]
    assert (margins[survivors] > state.level).all()
    assert state.log_p == pytest.approx(math.log(0.2))
    assert state.variance == pytest.approx(0.8 / 20)
    later = np.linspace(-5.0, 1.0, 100)
    failing = int((later >= 0).sum())
    state.settle(later + 2.0)  # more than enough fail
    failing = int((later + 2.0 >= 0).sum())
    assert state.status is Status.FOUND
    assert state.level == 0.0
    assert state.log_p == pytest.approx(math.log(0.2) + math.log(failing / 100))
    assert state.calls == 200


def test_a_margin_of_zero_is_a_failure() -> None:
    state = levels()
    state.settle(np.zeros(100))
    assert state.status is Status.FOUND
    assert state.log_p == 0.0


def test_ties_at_the_level_do_not_survive() -> None:
    state = levels()
    margins = np.array([-3.0] * 90 + [-1.0] * 10)
    survivors = state.settle(margins)
    assert survivors.tolist() == list(range(90, 100))
    assert state.log_p == pytest.approx(math.log(0.1))


def test_the_best_survive_together_if_tied() -> None:
    state = levels()
    survivors = state.settle(np.array([-3.0] * 40 + [-1.0] * 60))
    assert survivors.tolist() == list(range(40, 100))
    assert state.level == -3.0
    assert state.log_p == pytest.approx(math.log(0.6))


def test_equal_margins_are_counted_until_one_differs() -> None:
    state = levels()
    for _ in range(3):
        assert len(state.settle(np.full(100, -1.0))) == 100
    assert state.log_p == 0.0
    survivors = state.settle(np.array([-1.0] * 99 + [-0.5]))
    assert survivors.tolist() == [99]
    assert state.log_p == pytest.approx(math.log(1 / 400))


def test_equal_margins_end_at_the_floor() -> None:
    state = levels(floor=math.log(1 / 250))
    ended = 0
    while state.status is None:
        state.settle(np.full(100, -1.0))
        ended += 1
    assert (ended, state.status) == (3, Status.BELOW)
    assert state.log_p == pytest.approx(math.log(1 / 300))


def test_below_the_floor_it_ends() -> None:
    state = levels(floor=math.log(0.1))
    assert len(state.settle(np.linspace(-9, -5, 100)))
    assert not len(state.settle(np.linspace(-4, -3, 100)))
    assert state.status is Status.BELOW
    assert state.log_p == pytest.approx(math.log(0.04))


def test_calls_are_not_exceeded() -> None:
    state = levels(limit=299)
    assert len(state.settle(np.linspace(-9, -5, 100)))
    assert not len(state.settle(np.linspace(-4, -3, 100)))
    assert (state.calls, state.status) == (200, Status.OUT_OF_CALLS)
    exact = levels(limit=300)
    exact.settle(np.linspace(-9, -5, 100))
    assert len(exact.settle(np.linspace(-4, -3, 100)))


def test_few_failures_count_where_calls_end() -> None:
    state = levels(limit=150)
    state.settle(np.array([-1.0] * 97 + [0.1, 0.2, 0.3]))
    assert state.status is Status.FOUND
    assert state.log_p == pytest.approx(math.log(0.03))
