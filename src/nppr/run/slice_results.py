"""The number that a run is quoted for, on each slice of the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from nppr.core.tally import Claim, Direction, Evaluate, Metric, Tally
from nppr.data import Data, Slice, slices_of
from nppr.report.findings import headline_of
from nppr.report.model import ReportRecord, SliceResult
from nppr.report.number import Number
from nppr.statistics.betting import betting
from nppr.statistics.estimates import allow_for_audit

EVERY_DRAW = (Metric.AR, Metric.CORRUPTION)
"""Metrics of inputs that stay correct under every draw."""

RATES = (Metric.PR, Metric.NPPR, *EVERY_DRAW)


def measure_slices(
    report: ReportRecord, data: Data, tallies: Mapping[str, Tally[Evaluate]]
) -> tuple[SliceResult, ...]:
    """A row for every slice with a clean-correct input, by column, the worst first.

    The intervals are guaranteed (betting) for the population, and hold together within a column: each
    of its k slices has a k-th of the error.
    """
    row = headline_of(report)
    tally = tallies.get(row.tally or "") if row else None
    if row is None or tally is None or row.metric not in RATES:
        return ()
    columns = slices_of(data, tally.indices, tally.labels)
    return tuple(
        each for slices in columns.values() for each in _column(report, row, tally, slices)
    )


def _column(
    report: ReportRecord, row: Number, tally: Tally[Evaluate], slices: Sequence[Slice]
) -> list[SliceResult]:
    held = [each for each in slices if (each.rows & tally.clean_correct).any()]
    share = 1 - (1 - report.settings.measure.confidence) / max(1, len(held))
    rates = tally.unbroken.astype(np.float64) if row.metric in EVERY_DRAW else tally.rates
    found = []
    for each in held:
        own = rates[each.rows & tally.clean_correct]
        allowed = allow_for_audit(tally, share)
        interval = betting(own, allowed.confidence, report.seed)
        interval = interval.widened(allowed.of_mean(len(own)))
        found.append(
            SliceResult(
                column=each.column,
                name=each.name,
                source=row.name,
                tally=row.tally or "",
                metric=row.metric,
                direction=row.direction or Direction.ESTIMATE,
                value=float(own.mean()),
                low=interval.low,
                high=interval.high,
                confidence=report.settings.measure.confidence,
                method="betting",
                claim=row.own.claim if row.own else Claim.POPULATION,
                inputs=len(own),
                draws=tally.draws,
            )
        )
    return sorted(found, key=lambda each: (each.value, each.high, each.name))
