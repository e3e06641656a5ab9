"""The answer in one sentence, and what must be said beside it."""

from __future__ import annotations

from markupsafe import Markup

from nppr.report.page.headline import came_lower, headline_of, is_fixed
from nppr.report.page.line import attacked
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.quoting import (
    GUARANTEED,
    bounds_of,
    guaranteed,
    interval_of,
    population_bound,
    ratio_of,
    reference_of,
)
from nppr.report.schema import Report
from nppr.types import Metric

__all__ = ["answer"]


def answer(report: Report, numbers: Numbers) -> Markup:
    """The section's body."""
    found = headline_of(report)
    row = found.row
    clean = report.headline("clean", Metric.ACCURACY)
    used = interval_of(report, row) if row else None
    bound = row if row and row.metric is Metric.BOUND else next(iter(bounds_of(report)[-1:]), None)
    attacks = attacked(report) if found.metric in ("PR", "bound") else []
    return rendered(
        "answer.html.j2",
        n=numbers,
        report=report,
        kind=found.metric,
        row=row,
        fixed=row is not None and is_fixed(row),
        lower=came_lower(report, row) if row and row.metric is Metric.NPPR else [],
        missing=found.missing,
        skipped=bool(found.missing and found.missing.flags),
        used=used,
        exact=bool(used and used.method in GUARANTEED),
        guaranteed=guaranteed(report, row) if row else None,
        clean=clean if clean and clean.value is not None else None,
        attacks=attacks,
        bound=bound,
        ratio=ratio_of(bound) if bound else "",
        reference=reference_of(report, bound) if bound else "",
        population=population_bound(report, bound) if bound else None,
    )
