"""From the tally of a reference noise to what holds for all noise of bounded density ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nppr.errors import SpecError
from nppr.statistics.estimates import check_confidence, require_inputs
from nppr.statistics.intervals import bootstrap
from nppr.statistics.multiple import lower_mean_clipped, lower_population
from nppr.types import Claim, Direction, Estimate, Evaluate, Metric, Tally, require_evaluate

__all__ = ["LEAST_CONFIDENCE", "at_least", "at_least_together"]

LEAST_CONFIDENCE = 0.75
"""Below it, failures of unequal inputs may not be pooled."""


def at_least_together(
    tally: Tally[Evaluate], ratios: Sequence[float], confidence: float, seed: int = 0
) -> dict[float, list[Estimate]]:
    """`at_least` for several values of c whose bounds hold all together with this confidence.

    Each has its share of the error. What holds for a larger c holds for a smaller one too, so a bound
    is never below that of a larger c.
    """
    share = 1 - (1 - confidence) / len(ratios)
    found: dict[float, list[Estimate]] = {}
    best: dict[Claim, float] = {}
    for c in sorted(ratios, reverse=True):
        *bounds, _ = at_least(tally, c, share, seed)
        *_, estimate = at_least(tally, c, confidence, seed)
        for row in bounds:
            best[row.claim] = max(row.value, best.get(row.claim, 0.0))
        found[c] = [
            *(replace(row, value=best[row.claim], low=best[row.claim], confidence=confidence)
              for row in bounds),
            estimate,
        ]  # fmt: skip
    return {c: found[c] for c in ratios}


def at_least(tally: Tally[Evaluate], c: float, confidence: float, seed: int = 0) -> list[Estimate]:
    """The mean over clean-correct inputs of the infimum `max(0, 1 - c p)`: two bounds, one estimate.

    The bounds hold with probability at least `confidence`: the first for *this test set*, where only
    draws are random, the second for the population the inputs were drawn from. The estimate puts the
    observed shares for p; as the infimum is convex in p it is too high on average.
    """
    require_evaluate(tally)
    check_confidence(confidence)
    if confidence < LEAST_CONFIDENCE:
        raise SpecError(f"`confidence` must be at least {LEAST_CONFIDENCE} here, got {confidence}.")
    require_inputs(tally.headline_rates)
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
