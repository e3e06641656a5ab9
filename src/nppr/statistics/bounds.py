"""From the tally of a reference noise to what holds for all noise of bounded density ratio."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nppr.statistics.estimates import check_confidence
from nppr.statistics.intervals import bootstrap
from nppr.statistics.multiple import lower_mean_clipped, lower_population
from nppr.types import Claim, Direction, Estimate, Evaluate, Metric, Tally, require_evaluate

__all__ = ["at_least"]


def at_least(tally: Tally[Evaluate], c: float, confidence: float, seed: int = 0) -> list[Estimate]:
    """The mean over clean-correct inputs of the infimum `max(0, 1 - c p)`: two bounds, one estimate.

    The bounds hold with probability at least `confidence`: the first for *this test set*, where only
    draws are random, the second for the population the inputs were drawn from. The estimate puts the
    observed shares for p; as the infimum is convex in p it is too high on average.
    """
    require_evaluate(tally)
    check_confidence(confidence)
    right = tally.right[tally.clean_correct]
    wrong = tally.draws - right
    infimum = np.maximum(0.0, 1 - c * wrong / tally.draws)
    spread = bootstrap(infimum, confidence, seed)
    bounds = {
        Claim.TEST_SET: (lower_mean_clipped(wrong, tally.draws, c, confidence, seed), "exact"),
        Claim.POPULATION: (lower_population(wrong, tally.draws, c, confidence, seed), "betting"),
    }
    estimate = Estimate(
        metric=Metric.INFIMUM,
        value=float(infimum.mean()),
        low=spread.low,
        high=spread.high,
        confidence=confidence,
        method="bootstrap",
        claim=Claim.POPULATION,
        direction=Direction.ESTIMATE,
        inputs=len(wrong),
        draws=tally.draws,
        calls=tally.calls,
    )
    rows = [
        replace(
            estimate,
            metric=Metric.BOUND,
            value=bound,
            low=bound,
            high=1.0,
            method=method,
            claim=claim,
            direction=Direction.LOWER_BOUND,
        )
        for claim, (bound, method) in bounds.items()
    ]
    return [*rows, estimate]
