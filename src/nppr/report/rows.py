"""From the tally of a source to its rows in the report."""

from __future__ import annotations

import numpy as np

from nppr.report.schema import Result, result
from nppr.sources import Bound, Stress
from nppr.sources.stress import NAME as STRESS
from nppr.statistics.bounds import at_least_together
from nppr.statistics.estimates import (
    adversarial,
    corrupted,
    normalised,
    probabilistic,
    probably_accurate,
    stressed,
)
from nppr.types import Estimate, Evaluate, Metric, PerturbationSource, Tally

__all__ = ["rows_of"]


def rows_of(
    source: PerturbationSource,
    tally: Tally[Evaluate],
    clean: Tally[Evaluate],
    confidence: float,
    seed: int,
) -> list[Result]:
    """Every reading of a tally; `clean` is the measurement without noise."""
    if isinstance(source, Stress):
        return _stress(source, tally, clean, confidence, seed)
    if isinstance(source, Bound):
        return [
            result(f"{source.name}:c={c:.15g}", row)
            for c, rows in at_least_together(tally, source.ratios, confidence, seed).items()
            for row in rows
        ]
    if source.metric is Metric.AR:
        headline: list[Estimate] = [adversarial(tally, confidence)]
    elif source.metric is Metric.CORRUPTION:
        headline = [corrupted(tally, confidence)]
    else:
        headline = probabilistic(tally, confidence, source.metric, seed)
    headline = [*headline, normalised(tally, confidence, source.metric, seed)]
    if source.metric in (Metric.PR, Metric.NPPR):
        headline += probably_accurate(tally, confidence, source.metric)
    return [result(source.name, row) for row in headline]


def _stress(
    source: Stress,
    tally: Tally[Evaluate],
    clean: Tally[Evaluate],
    confidence: float,
    seed: int,
) -> list[Result]:
    """Two rows for every q."""
    assert tally.sums is not None
    assert clean.sums is not None
    standard = np.exp(clean.sums[:, 0])
    return [
        result(f"{STRESS}:q={q:.15g}", row)
        for q, losses in source.values(tally.sums, tally.draws).items()
        for row in stressed(tally, losses, standard, confidence, seed)
    ]
