"""The one number that a page opens with, and those that stand beside it on the line."""

from __future__ import annotations

from dataclasses import dataclass

from nppr.fit import FAMILY
from nppr.report.per_input import PerInput
from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.report.tables import GUARANTEED, table_rows
from nppr.types import Direction, Metric

__all__ = ["Headline", "guaranteed", "headline_of", "measured_source", "table_rows", "worst_noise"]

METHODS = (*GUARANTEED, "empirical-bernstein")
"""Guaranteed intervals about the population, the one to quote first."""

ANSWERS = (Metric.NPPR, Metric.PR, Metric.AR, Metric.BOUND, Metric.CORRUPTION, Metric.ACCURACY)
"""What is quoted, the first that a run has."""


@dataclass(frozen=True)
class Headline:
    """The result to quote, or None where nothing was measured; `missing` is an NPPR that failed."""

    row: Result | None
    missing: Result | None = None

    @property
    def metric(self) -> str:
        """The name of its metric, empty where there is none."""
        return self.row.metric.value if self.row else ""


def headline_of(report: Report) -> Headline:
    """NPPR of the widest admissible set, else PR, AR or a bound: the lowest there is.

    NPPR is that of the smallest floor, together with the reference noises: what was chosen on the
    select part, not what came out lowest on the evaluate part.
    """
    rows = table_rows(report)
    missing = next((row for row in rows if row.metric is Metric.NPPR and row.value is None), None)
    for metric in ANSWERS:
        row = worst_noise(report) if metric is Metric.NPPR else None
        row = row or next((r for r in rows if r.metric is metric and r.value is not None), None)
        if row is not None:
            return Headline(row, missing if metric is not Metric.NPPR else None)
    return Headline(None, missing)


def worst_noise(report: Report) -> Result | None:
    """NPPR with the smallest floor: the row of what won on select."""
    learned = [made for made in report.distributions if ":fit-seed=" not in made["source"]]
    for made in sorted(learned, key=lambda made: float(made["family"]["floor"])):
        union = report.headline(made["source"] + WITH_REFERENCES, Metric.NPPR)
        won = made["fit"].get("with_references", {}).get("winner", FAMILY) != FAMILY
        row = union if won and union else report.headline(made["source"], Metric.NPPR)
        if row is not None and row.value is not None:
            return row
    return None


def guaranteed(report: Report, row: Result) -> Result | None:
    """The result of the same number whose interval holds at any size of sample."""
    if row.direction is Direction.LOWER_BOUND:
        return None
    same = {
        other.method: other
        for other in report.results
        if (other.source, other.metric) == (row.source, row.metric) and other.value is not None
    }
    return next((same[method] for method in METHODS if method in same), None)


def measured_source(report: Report, per_input: PerInput, row: Result) -> str | None:
    """The source of `per_input.csv` whose draws a result speaks about."""
    source = row.source.removesuffix(WITH_REFERENCES)
    if source != row.source:
        made = next((made for made in report.distributions if made["source"] == source), None)
        winner = made["fit"].get("with_references", {}).get("winner", FAMILY) if made else FAMILY
        source = source if winner == FAMILY else winner
    known = per_input.sources
    if source in known:
        return source
    same = [r.source for r in table_rows(report) if r.metric is row.metric and r.source in known]
    return same[0] if same else None
