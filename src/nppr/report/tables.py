"""The results as a table for the console."""

from __future__ import annotations

import io

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from nppr.report.schema import Report, Result
from nppr.types import Metric

__all__ = ["as_text", "console_table"]

BAR = 24
ORDER = (Metric.ACCURACY, Metric.AR, Metric.NPPR, Metric.PR)
GUARANTEED = "empirical-bernstein"


def console_table(report: Report) -> Table:
    """One row a source: clean accuracy first, then from AR up to PR, smallest first."""
    confidence = report.settings["confidence"]
    level = f"{100 * confidence:g} %"
    table = Table(title=escape(_title(report)), title_justify="left", title_style="bold")
    table.add_column("metric")
    table.add_column("source")
    table.add_column("value", justify="right")
    table.add_column(f"{level} interval", justify="right")
    table.add_column("guaranteed", justify="right")
    table.add_column("/ clean acc.", justify="right")
    table.add_column("inputs", justify="right")
    table.add_column("draws", justify="right")
    table.add_column("0" + " " * (BAR - 4) + "100", no_wrap=True, min_width=BAR)
    rows = _rows(report)
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(*_cells(report, row), end_section=_ends_section(row, following))
    return table


def as_text(report: Report, width: int) -> str:
    """The table as plain text."""
    text = io.StringIO()
    Console(file=text, width=width, no_color=True).print(console_table(report))
    return text.getvalue()


def _title(report: Report) -> str:
    name, data = report.classifier["name"], report.data["name"]
    budget = f"{report.budget['norm']} {report.budget['text']}"
    return f"{name} on {data}, budget {budget}, seed {report.seed}"


def _rows(report: Report) -> list[Result]:
    """The first result of every source, in the order of the theory: AR <= NPPR <= PR."""
    firsts = {}
    for candidate in report.results:
        if candidate.metric is not Metric.NORMALISED_ACCURACY:
            firsts.setdefault((candidate.source, candidate.metric), candidate)
    return sorted(
        firsts.values(), key=lambda row: (ORDER.index(row.metric), row.value is None, row.value)
    )


def _ends_section(row: Result, following: Result | None) -> bool:
    return following is not None and following.metric is not row.metric


def _cells(report: Report, row: Result) -> list[str | Text]:
    if row.value is None or row.low is None or row.high is None:
        why = Text(row.error or "failed", style="red")
        return [row.metric.value, escape(row.source), "-", "-", "-", "-", "-", "-", why]
    guaranteed = next(
        (
            other
            for other in report.results
            if (other.source, other.metric, other.method) == (row.source, row.metric, GUARANTEED)
        ),
        row if row.method == "clopper-pearson" else None,
    )
    ratio = report.headline(row.source, Metric.NORMALISED_ACCURACY)
    at_most = "<= " if row.direction == "upper bound" else ""
    return [
        row.metric.value,
        escape(row.source),
        at_most + _percent(row.value),
        f"{_percent(row.low)} - {_percent(row.high)}" + ("*" if row.flags else ""),
        _range(guaranteed),
        _percent(ratio.value) if ratio is not None and ratio.value is not None else "",
        f"{row.inputs:,}",
        f"{row.draws:,}",
        _bar(row.value, row.low, row.high),
    ]


def _range(row: Result | None) -> str:
    if row is None or row.low is None or row.high is None:
        return ""
    return f"{_percent(row.low)} - {_percent(row.high)}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _bar(value: float, low: float, high: float) -> Text:
    """The value as a bar, its interval as a lighter band."""
    cells = [" "] * BAR
    end = round(value * BAR)
    for place in range(end):
        cells[place] = "━"
    for place in range(round(low * BAR), min(BAR, round(high * BAR))):
        cells[place] = "┅" if place >= end else "━"
    return Text("".join(cells), style="cyan")
