"""Verdicts by simulation: no winner where there is none, whatever the differences look like."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nppr.compare.verdicts import Pair, decide
from nppr.core.tally import FloatArray
from nppr.statistics.paired import Share

REPEATS = 150
MOST = REPEATS * 0.05 + 2 * math.sqrt(REPEATS * 0.05 * 0.95)


def share(rates: FloatArray, *, outcomes: bool = False) -> Share:
    return Share(rates, np.ones(len(rates)), outcomes)


def skewed(rng: np.random.Generator, n: int, loss: float) -> Pair:
    """A sixteenth gained on some inputs, everything lost on few: the means are equal."""
    u, rest = rng.random(n), rng.binomial(16, 0.85, n) / 16
    wins, lost = u < 16 * loss, (16 * loss <= u) & (u < 17 * loss)
    a = np.where(wins, 15 / 16, np.where(lost, 1.0, rest))
    return share(a), share(np.where(wins, 1.0, np.where(lost, 0.0, rest)))


def attacked(rng: np.random.Generator, n: int, discordant: float) -> Pair:
    differ, side = rng.random(n) < discordant, rng.random(n) < 0.5
    ends = (np.where(differ, wins, True).astype(np.float64) for wins in (side, ~side))
    a, b = (share(each, outcomes=True) for each in ends)
    return a, b


@pytest.mark.slow
@pytest.mark.parametrize(("n", "loss"), [(400, 0.001), (600, 0.001), (400, 0.0025), (50, 0.01)])
def test_sparse_and_skewed_differences_name_no_winner(n: int, loss: float) -> None:
    rng = np.random.default_rng(0)
    wrong = sum(decide([skewed(rng, n, loss)], 0.95)[0].separated for _ in range(REPEATS))
    assert wrong <= MOST


@pytest.mark.slow
def test_fourteen_rows_together_name_no_winner() -> None:
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(REPEATS):
        rows = [attacked(rng, 400, 0.1) for _ in range(7)]
        rows += [skewed(rng, 400, 0.001) for _ in range(7)]
        wrong += any(each.separated for each in decide(rows, 0.95))
    assert wrong <= MOST


def test_the_error_is_used_up_by_attacks() -> None:
    """The exact test is not merely silent: with many discordant inputs it errs in nearly 5 %."""
    rng = np.random.default_rng(2)
    wrong = sum(decide([attacked(rng, 400, 1.0)], 0.95)[0].separated for _ in range(1000))
    assert 20 <= wrong <= 64


def test_one_outcome_per_input_is_decided_by_the_sign_test_and_rates_by_bets() -> None:
    rng = np.random.default_rng(3)
    pair = attacked(rng, 50, 0.5)
    rates = share(pair[1].above)
    found = [each.method for each in decide([pair, (pair[0], rates)], 0.95)]
    assert found == ["sign-test", "betting"]
    assert decide([], 0.95) == []
