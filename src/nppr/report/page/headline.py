"""The one number that a page opens with, and those that stand beside it on the line."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nppr.report.per_input import PerInput
from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.report.shares import winner_of
from nppr.report.tables import table_rows
from nppr.search.search_record import FAMILY
from nppr.types import Metric

__all__ = [
    "FIT_SEED",
    "Headline",
    "came_lower",
    "headline_of",
    "is_fixed",
    "measured_source",
    "table_rows",
    "worst_noise",
]

FIT_SEED = ":fit-seed="
"""In the name of a learned source that repeats a fit."""

FIXED = ("gaussian", "uniform", "laplace")
FLOOR = re.compile(r":floor=([0-9.eE+-]+)")

ANSWERS = (Metric.NPPR, Metric.PR, Metric.AR, Metric.BOUND, Metric.CORRUPTION, Metric.ACCURACY)
"""What is quoted, the first that a run has."""


@dataclass(frozen=True)
class Headline:
    """The result to quote, or None where nothing was measured.

    `missing` is an NPPR that failed: any, or beside an NPPR that of a wider admissible set.
    """

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
    failed = [row for row in rows if row.metric is Metric.NPPR and row.value is None]
    for metric in ANSWERS:
        row = worst_noise(report) if metric is Metric.NPPR else None
        row = row or next((r for r in rows if r.metric is metric and r.value is not None), None)
        if row is not None:
            wider = [r for r in failed if metric is not Metric.NPPR or _floor(r) < _floor(row)]
            return Headline(row, next(iter(wider), None))
    return Headline(None, next(iter(failed), None))


def _floor(row: Result) -> float:
    """The floor in the name of a learned source; none is 0."""
    found = FLOOR.search(row.source)
    return float(found[1]) if found else 0.0


def worst_noise(report: Report) -> Result | None:
    """NPPR with the smallest floor: the row of what won on select."""
    learned = [made for made in report.distributions if FIT_SEED not in made["source"]]
    for made in sorted(learned, key=lambda made: float(made["family"]["floor"])):
        union = report.headline(made["source"] + WITH_REFERENCES, Metric.NPPR)
        family = report.headline(made["source"], Metric.NPPR)
        row = union if union and winner_of(made) != FAMILY else family
        if row is not None and row.value is not None:
            return row
    return None


def came_lower(report: Report, row: Result) -> list[Result]:
    """NPPR and PR of other rows that are below the quoted one on the evaluate part."""
    return [
        other
        for other in table_rows(report)
        if other.metric in (Metric.NPPR, Metric.PR)
        and FIT_SEED not in other.source
        and other.value is not None
        and row.value is not None
        and other.value < row.value
    ]


def is_fixed(row: Result) -> bool:
    """Whether a source is noise that knows nothing about the classifier."""
    return row.source.partition(":")[0] in FIXED


def measured_source(report: Report, per_input: PerInput, row: Result) -> str | None:
    """The source of `per_input.csv` whose draws a result speaks about."""
    source = row.source.removesuffix(WITH_REFERENCES)
    if source != row.source:
        made = next((made for made in report.distributions if made["source"] == source), None)
        winner = winner_of(made) if made else FAMILY
        source = source if winner == FAMILY else winner
    known = per_input.sources
    if source in known:
        return source
    same = [r.source for r in table_rows(report) if r.metric is row.metric and r.source in known]
    return same[0] if same else None
