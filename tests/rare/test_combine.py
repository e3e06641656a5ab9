from __future__ import annotations

import math

import numpy as np
import pytest

from nppr.errors import SpecError
from nppr.rare import Rare, Status, combined
from nppr.types import Evaluate, Tally

DRAWS = 100


def tally(right: list[int]) -> Tally[Evaluate]:
    count = len(right)
    return Tally(
        kind=Evaluate,
        indices=np.arange(count) + 10,
        labels=np.zeros(count, dtype=np.int64),
        clean_correct=np.ones(count, bool),
        right=np.array(right),
        draws=DRAWS,
        calls=count * DRAWS,
        micro_batch=8,
    )


def rare(positions: list[int], p: list[float], spread: float = 0.2) -> Rare:
    places, log_p = np.array(positions), np.log(p)
    return Rare(
        source="uniform",
        positions=places,
        indices=places + 10,
        log_p=log_p,
        log_low=log_p - 2 * spread,
        log_high=log_p + 2 * spread,
        spread=np.full(len(p), spread),
        calls=np.full(len(p), 1000),
        status=(Status.FOUND,) * len(p),
        particles=100,
        replicates=5,
        confidence=0.95,
    )


def test_failures_seen_are_kept_and_zeros_are_filled() -> None:
    found = combined(tally([90, 100, 100, 0, 100]), rare([2, 0, 1], [1e-6, 0.5, 1e-3]))
    assert np.allclose(found.failures, [0.1, 1e-3, 1e-6, 1.0, 0.0])
    assert found.by_splitting.tolist() == [False, True, True, False, False]
    assert found.mean() == pytest.approx((0.1 + 1e-3 + 1e-6 + 1) / 5)
    assert found.added() == pytest.approx((1e-3 + 1e-6) / 5)


def test_errors_add_up_over_inputs() -> None:
    found = combined(tally([90, 100, 0]), rare([1], [1e-3]))
    binomial = math.sqrt(0.1 * 0.9 / 99)
    splitting = 1e-3 * math.sqrt(math.expm1(0.04))
    assert np.allclose(found.errors, [binomial, splitting, 0.0])
    assert found.standard_error() == pytest.approx(math.hypot(binomial, splitting) / 3)
    among = np.array([False, True, True])
    assert found.mean(among) == pytest.approx((1e-3 + 1) / 2)
    assert found.standard_error(among) == pytest.approx(splitting / 2)
    assert found.added(among) == pytest.approx(1e-3 / 2)


def test_the_bias_is_what_is_added() -> None:
    """Over many tallies of one input with q = 0.01: `E = q + q (1 - q)^S`."""
    q, tallies = 0.01, 20_000
    right = DRAWS - np.random.default_rng(0).binomial(DRAWS, q, tallies)
    found = combined(tally(right.tolist()), rare(list(range(tallies)), [q] * tallies))
    assert found.mean() == pytest.approx(q + q * (1 - q) ** DRAWS, rel=0.02)
    assert found.added() == pytest.approx(q * (1 - q) ** DRAWS, rel=0.03)
    assert found.mean() - found.added() == pytest.approx(q, rel=0.03)


@pytest.mark.parametrize("positions", [[7], [0]])
def test_results_of_another_part_are_refused(positions: list[int]) -> None:
    other = rare(positions, [1e-3])
    if positions == [0]:
        other.indices[0] = 99
    with pytest.raises(SpecError, match="another part"):
        combined(tally([90, 100]), other)
