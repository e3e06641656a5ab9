"""The robustness line: AR, NPPR and PR on one axis from 0 to 100 %, each in a lane of its own.

A lane is a line of text and a strip of the axis, so labels never meet, however close the numbers.
Positions are percentages of the strip's width: the picture stays sharp at any width.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from nppr.report.page.headline import FIT_SEED, headline_of, is_fixed, table_rows
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.quoting import (
    bounds_of,
    interval_of,
    population_bound,
    ratio_of,
    reference_of,
)
from nppr.report.schema import Report, Result
from nppr.types import Direction, Metric

__all__ = ["Lane", "attacked", "lanes_of", "robustness_line"]

MOST_OF_A_KIND = 6
MERGED = "merged"


@dataclass(frozen=True)
class Lane:
    """One number on the axis: what it is in a word, in a few, the result and that of its interval.

    `population` is the same bound about the population.
    """

    name: str
    what: str
    row: Result
    interval: Result
    colour: str
    population: Result | None = None

    @property
    def at_most(self) -> bool:
        """Whether the truth can only be lower."""
        return self.row.direction is Direction.UPPER_BOUND

    @property
    def at_least(self) -> bool:
        """Whether the truth can only be higher."""
        return self.row.direction is Direction.LOWER_BOUND


def robustness_line(report: Report, numbers: Numbers) -> Markup:
    """The section's body."""
    lanes = lanes_of(report)
    claims = sorted({lane.row.claim.value for lane in lanes if lane.row.claim})
    replaced = {str(lane.interval.method) for lane in lanes if lane.interval is not lane.row}
    return rendered(
        "line.html.j2",
        n=numbers,
        report=report,
        lanes=lanes,
        claims=claims,
        replaced=sorted(replaced),
        at_most=any(lane.at_most for lane in lanes),
        at_least=any(lane.at_least for lane in lanes),
    )


def attacked(report: Report) -> list[Result]:
    """AR of everything in the budget together, else the lowest one; none without attacks."""
    rows = [r for r in table_rows(report) if r.metric is Metric.AR and r.value is not None]
    return [row for row in rows if row.source == MERGED] or rows[:1]


def lanes_of(report: Report) -> list[Lane]:
    """From the lowest kind of number to the highest: AR, NPPR, PR; then what holds at least."""
    rows = [row for row in table_rows(report) if row.value is not None]
    learned = [r for r in rows if r.metric is Metric.NPPR and FIT_SEED not in r.source]
    first = headline_of(report).row
    learned.sort(key=lambda row: row is not first)
    noise = [row for row in rows if row.metric is Metric.PR]
    fixed = [row for row in noise if is_fixed(row)]
    others = [row for row in noise if not is_fixed(row)]
    words = [("AR", _attack_words(row), row, "ar") for row in attacked(report)]
    words += [("NPPR", row.source, row, "nppr") for row in learned[:MOST_OF_A_KIND]]
    words += [("PR", f"{row.source}, other noise", row, "pr") for row in others[:1]]
    words += [("PR", f"{row.source}, the worst fixed noise", row, "pr") for row in fixed[:1]]
    words += [("PR", f"{row.source}, the mildest", row, "pr") for row in fixed[1:][-1:]]
    lanes = [
        Lane(name, what, row, interval_of(report, row), colour) for name, what, row, colour in words
    ]
    return lanes + [_bound(report, row) for row in bounds_of(report)[:MOST_OF_A_KIND]]


def _bound(report: Report, row: Result) -> Lane:
    reference = reference_of(report, row)
    of = f"that of {reference} noise" if reference else "the reference's"
    words = f"all noise of density up to {ratio_of(row)} x {of}"
    return Lane("at least", words, row, row, "bound", population_bound(report, row))


def _attack_words(row: Result) -> str:
    return "all attacks and noise together" if row.source == MERGED else row.source
