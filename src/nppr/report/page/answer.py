"""The answer in one sentence, and what must be said beside it."""

from __future__ import annotations

from markupsafe import Markup

from nppr.report.page.headline import guaranteed, headline_of
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.schema import Report, Result
from nppr.report.tables import GUARANTEED
from nppr.types import Metric

__all__ = ["answer", "bounds_of", "ratio_of"]


def answer(report: Report, numbers: Numbers) -> Markup:
    """The section's body."""
    found = headline_of(report)
    clean = report.headline("clean", Metric.ACCURACY)
    return rendered(
        "answer.html.j2",
        n=numbers,
        report=report,
        kind=found.metric,
        row=found.row,
        missing=found.missing,
        skipped=bool(found.missing and found.missing.flags),
        exact=bool(found.row and found.row.method in GUARANTEED),
        guaranteed=guaranteed(report, found.row) if found.row else None,
        clean=clean if clean and clean.value is not None else None,
        bounds=bounds_of(report),
        ratio=ratio_of,
    )


def bounds_of(report: Report) -> list[Result]:
    """What holds for all noise of bounded density ratio: one result a value of c."""
    firsts: dict[str, Result] = {}
    for row in report.results:
        if row.metric is Metric.BOUND and row.value is not None:
            firsts.setdefault(row.source, row)
    return list(firsts.values())


def ratio_of(row: Result) -> str:
    """The c of a bound, which stands behind its name."""
    return row.source.rpartition("c=")[2]
