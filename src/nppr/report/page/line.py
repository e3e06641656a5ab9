"""The robustness line: AR, NPPR and PR on one axis from 0 to 100 %, each in a lane of its own.

A lane is a line of text and a strip of the axis, so labels never meet, however close the numbers.
Positions are percentages of the strip's width: the picture stays sharp at any width.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from nppr.report.page.answer import bounds_of, ratio_of
from nppr.report.page.headline import headline_of, table_rows
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.schema import Report, Result
from nppr.types import Direction, Metric

__all__ = ["Lane", "lanes_of", "robustness_line"]

MOST_OF_A_KIND = 6
MERGED = "merged"


@dataclass(frozen=True)
class Lane:
    """One number on the axis: what it is in a word, in a few, and the result."""

    name: str
    what: str
    row: Result
    colour: str

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
    return rendered("line.html.j2", n=numbers, report=report, lanes=lanes, claims=claims)


def lanes_of(report: Report) -> list[Lane]:
    """From the lowest kind of number to the highest: AR, NPPR, PR; then what holds at least."""
    rows = [row for row in table_rows(report) if row.value is not None]
    attacks = [row for row in rows if row.metric is Metric.AR]
    merged = [row for row in attacks if row.source == MERGED] or attacks[:1]
    learned = [r for r in rows if r.metric is Metric.NPPR and ":fit-seed=" not in r.source]
    first = headline_of(report).row
    learned.sort(key=lambda row: row is not first)
    noise = [row for row in rows if row.metric is Metric.PR]
    lanes = [Lane("AR", _attack_words(row), row, "ar") for row in merged]
    lanes += [Lane("NPPR", row.source, row, "nppr") for row in learned[:MOST_OF_A_KIND]]
    lanes += [Lane("PR", f"{row.source}, the worst fixed noise", row, "pr") for row in noise[:1]]
    if len(noise) > 1:
        lanes.append(Lane("PR", f"{noise[-1].source}, the mildest", noise[-1], "pr"))
    for row in bounds_of(report)[:MOST_OF_A_KIND]:
        words = f"all noise of density up to {ratio_of(row)} x the reference's"
        lanes.append(Lane("at least", words, row, "bound"))
    return lanes


def _attack_words(row: Result) -> str:
    return "all attacks and noise together" if row.source == MERGED else row.source
