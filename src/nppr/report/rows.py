"""From the tally of a source to its rows in the report."""

from __future__ import annotations

import numpy as np
from scipy.stats import norm

from nppr.rare import Combined, Rare
from nppr.report.schema import Result, result
from nppr.sources import Bound, Stress
from nppr.sources.stress import NAME as STRESS
from nppr.statistics.density_ratio import at_least_together
from nppr.statistics.estimates import (
    adversarial,
    corrupted,
    normalised,
    probabilistic,
    probably_accurate,
    stressed,
)
from nppr.types import Claim, Direction, Estimate, Evaluate, Metric, PerturbationSource, Tally

__all__ = ["SPLITTING", "rare_rows", "rows_of"]

SPLITTING = "draws + splitting"


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


def rare_rows(
    source: PerturbationSource,
    tally: Tally[Evaluate],
    rare: Rare,
    known: Combined,
    confidence: float,
) -> list[Result]:
    """Plain draws and splitting together: inputs that failed in some draw keep their share of failures.

    The intervals, `mean -+ z e` with the standard error e of draws and splitting, are approximate and
    speak about this test set.
    """
    among = tally.clean_correct
    p, errors = known.failures[among], known.errors[among]
    z = float(norm.ppf((1 + confidence) / 2))
    ratios = source.ratios if isinstance(source, Bound) else (1.0,)
    rows = []
    for c in ratios:
        right = np.maximum(0.0, 1 - c * p)
        error = float(np.sqrt(np.square(c * errors * (right > 0)).sum())) / len(right)
        value = float(right.mean())
        row = Estimate(
            metric=Metric.INFIMUM if isinstance(source, Bound) else source.metric,
            value=value,
            low=max(0.0, value - z * error),
            high=min(1.0, value + z * error),
            confidence=confidence,
            method=SPLITTING,
            claim=Claim.TEST_SET,
            direction=_direction(source.metric),
            inputs=len(right),
            draws=tally.draws,
            calls=tally.calls + int(rare.calls.sum()),
        )
        name = f"{source.name}:c={c:.15g}" if isinstance(source, Bound) else source.name
        rows.append(result(name, row))
    return rows


def _direction(metric: Metric) -> Direction:
    return Direction.UPPER_BOUND if metric is Metric.NPPR else Direction.ESTIMATE


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
