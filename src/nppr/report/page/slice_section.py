"""Robustness by slice of the inputs, below the classes."""

from __future__ import annotations

from markupsafe import Markup

from nppr.report.model import ReportRecord
from nppr.report.page.shell import rendered
from nppr.report.slices_table import slices_table, worst_words


def by_slice(report: ReportRecord) -> Markup:
    """What follows the classes; empty for a run without columns beside the data."""
    words = worst_words(report)
    if not words:
        return Markup("")
    table = slices_table(report).to_html("Robustness by slice", "slice-table")
    return rendered("slices.html.j2", words=words, table=table)
