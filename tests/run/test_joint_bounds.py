"""Two bounds of the same sets share the error, and the smaller set never has the smaller bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers import stated
from nppr.core.budget import Budget
from nppr.core.tally import Claim, Direction, Metric
from nppr.report.number import BoundSubject, Number, StatedInterval
from nppr.run.joint_bounds import apply_supersets
from nppr.sources import Bound, Source, Uniform, share_error
from nppr.statistics.lower_bounds import lower_test_set
from nppr.statistics.noise_sets import Contaminated
from nppr.statistics.shared_patterns import lower_shared

BUDGET = Budget.linf(0.3)
OWN = Bound(BUDGET, ratio="2+10")
BLIND = Bound(BUDGET, ratio="2+10", patterns=64)


def row(source: Source, c: float, *values: float) -> Number:
    """The bound for this test set, and for the population if there are two values."""
    method, own = "exact" if source is OWN else "betting", source is OWN
    return Number(
        subject=BoundSubject(
            source=source.name, noise_set="ratio", density_ratio=c, sees_input=own
        ),
        metric=Metric.BOUND,
        direction=Direction.LOWER_BOUND,
        confidence=0.95,
        value=values[0],
        intervals=tuple(
            StatedInterval(low=value, high=1.0, method=method, claim=claim)
            for value, claim in zip(values, (Claim.TEST_SET, Claim.POPULATION), strict=False)
        ),
    )


def test_bounds_of_the_same_sets_share_the_error() -> None:
    own, blind, other, noise = share_error(
        [OWN, BLIND, Bound(BUDGET, ratio="5", patterns=9), Uniform(BUDGET)]
    )
    assert isinstance(own, Bound)
    assert isinstance(blind, Bound)
    assert isinstance(other, Bound)
    assert (own.beside, blind.beside, other.beside) == (BLIND, OWN, None)
    assert (own.superset, blind.superset) == ("", OWN.name)
    assert (own.name, blind.name, noise) == (OWN.name, BLIND.name, Uniform(BUDGET))


def test_the_larger_bound_is_printed_where_it_holds() -> None:
    rows = [
        row(OWN, 2, 0.9), row(OWN, 10, 0.5), row(BLIND, 2, 0.8, 0.7), row(BLIND, 10, 0.6),
    ]  # fmt: skip
    found = apply_supersets(rows, share_error([OWN, BLIND]))
    assert [each.value for each in found] == [0.9, 0.5, 0.9, 0.6]
    assert [[each.low for each in row.intervals] for row in found] == [
        [0.9],
        [0.5],
        [0.9, 0.7],
        [0.6],
    ]
    assert found[2].bound is not None
    assert found[2].bound.sees_input is False
    assert stated(found[2]).method == "exact"
    assert apply_supersets(rows, [OWN, BLIND]) == rows, "each with the whole error"


def test_of_sets_that_keep_a_value_the_larger_one_is_printed() -> None:
    sources = [Bound(BUDGET, least=0.6), Bound(BUDGET, least=0.6, patterns=64)]
    for sees, blind, shown in ((4.0, 2.0, 4.0), (2.0, 4.0, 4.0)):
        rows = [row(each, c, 0.6) for each, c in zip(sources, (sees, blind), strict=True)]
        found = apply_supersets(rows, share_error(sources))
        assert [each.bound and each.bound.density_ratio for each in found] == [sees, shown]


@pytest.mark.slow
def test_both_bounds_and_the_larger_of_them_hold_together() -> None:
    """Each pattern breaks the inputs below its number: the worst noise of either kind is known."""
    rng, n, repeats, error, noise = np.random.default_rng(0), 60, 300, 0.1, Contaminated(2.0)
    latent = (np.arange(n) + 0.5) / n
    share = 1 - error / 2
    missed = 0
    for seed in range(repeats):
        # A pattern has a number z = 0.6 u^2: input i fails if z exceeds its own, w.p. p_i.
        p = 1 - np.sqrt(np.minimum(1, latent / 0.6))
        sees = 1 - noise.h(p).mean()
        worst = (np.searchsorted(latent, 0.6 * (1 - np.arange(5000) / 10_000) ** 2) / n).mean()
        patterns = np.searchsorted(latent, 0.6 * rng.random(200) ** 2) / n
        own = lower_test_set(rng.binomial(30, p), 30, noise, share, seed)
        blind = max(own, lower_shared(patterns, noise, share, seed))
        missed += own > sees or blind > 1 - worst
    assert missed / repeats <= error + 2 * math.sqrt(error * (1 - error) / repeats)
