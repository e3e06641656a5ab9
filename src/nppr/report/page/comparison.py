"""The comparison: the rows of the console's table in its order, with all it takes to quote them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nppr.report.notes import SHORT, legend_of
from nppr.report.page.figures import PageFigure
from nppr.report.page.headline import headline_of, table_rows
from nppr.report.page.line import MERGED
from nppr.report.page.numbers import LOSSES, Numbers
from nppr.report.page.shell import rendered
from nppr.report.quoting import guaranteed, not_split
from nppr.report.rows import SPLITTING
from nppr.report.schema import Report, Result
from nppr.report.tables import RELATIVE
from nppr.types import Metric

__all__ = ["Line", "comparison", "lines_of"]


@dataclass(frozen=True)
class Line:
    """A row of the table: the result, and what stands beside it."""

    row: Result
    label: str
    guaranteed: Result | None
    by_clean: Result | None
    first: bool
    headline: bool

    @property
    def loss(self) -> bool:
        """Whether the number is a loss, not a share."""
        return self.row.metric in LOSSES


def comparison(report: Report, numbers: Numbers, figures: Sequence[PageFigure] = ()) -> Markup:
    """The section's body."""
    return rendered(
        "comparison.html.j2",
        n=numbers,
        report=report,
        lines=lines_of(report),
        legend=legend_of(report),
        failures=[row for row in report.results if row.error],
        radii=_at_radii(report),
        figures=figures,
        learned=bool(report.distributions),
        not_split=not_split(report),
        split=[row for row in report.results if row.method == SPLITTING],
        nearly=(nearly := _nearly_always(report)),
        gammas=[row.gamma for row in next(iter(nearly.values()), [])],
        relative=next(
            (row for row in report.results if row.metric in RELATIVE and row.inputs), None
        ),
    )


def lines_of(report: Report) -> list[Line]:
    """One line a source, clean accuracy first, then from AR up to PR, smallest first."""
    quoted = headline_of(report).row
    lines: list[Line] = []
    for row in table_rows(report):
        stress = row.metric is Metric.STRESS
        ratio = Metric.NORMALISED_STRESS if stress else Metric.NORMALISED_ACCURACY
        lines.append(
            Line(
                row=row,
                label=SHORT.get(row.metric, row.metric.value),
                guaranteed=guaranteed(report, row),
                by_clean=report.headline(row.source, ratio),
                first=not lines or lines[-1].row.metric is not row.metric,
                headline=row is quoted,
            )
        )
    return lines


def _at_radii(report: Report) -> list[tuple[Result, list[Result | None]]]:
    """The rows of the table with the same number at the other radii."""
    found = []
    for row in table_rows(report):
        if row.metric in (Metric.AR, Metric.NPPR, Metric.PR) and row.source != MERGED:
            others = [
                next(
                    (r for r in at.results if (r.source, r.metric) == (row.source, row.metric)),
                    None,
                )
                for at in report.radii
            ]
            found.append((row, others))
    return found if report.radii else []


def _nearly_always(report: Report) -> dict[str, list[Result]]:
    """Prob.Acc of every source that has it, in the order of gamma."""
    found: dict[str, list[Result]] = {}
    for row in report.results:
        if row.metric is Metric.PROB_ACC and row.value is not None:
            found.setdefault(row.source, []).append(row)
    return found
