"""The results as a table for the console."""

from __future__ import annotations

import io
from itertools import zip_longest

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nppr.report.notes import label_of, notes, percent
from nppr.report.quoting import guaranteed
from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.search.search_record import FAMILY
from nppr.types import Direction, Metric

__all__ = [
    "RELATIVE",
    "as_text",
    "console_table",
    "table_rows",
]

ORDER = (
    Metric.ACCURACY,
    Metric.AR,
    Metric.NPPR,
    Metric.PR,
    Metric.CORRUPTION,
    Metric.BOUND,
    Metric.STRESS,
)
RELATIVE = (Metric.AR, Metric.NPPR, Metric.PR, Metric.CORRUPTION)
"""Metrics over the inputs that are right without noise."""

BAR = 20
WIDE = 104
"""Console width from which there is room for the bars."""


def console_table(report: Report, width: int) -> Table:
    """One row a source: clean accuracy first, then from AR up to PR, smallest first."""
    level = f"{100 * report.settings['confidence']:g} %"
    table = Table(
        box=box.SIMPLE_HEAD,
        title=_title(report),
        title_justify="left",
        title_style="",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("metric", no_wrap=True)
    table.add_column("source", overflow="fold")
    for name in ("value %", f"{level} interval", "guaranteed", "/ clean", "draws"):
        table.add_column(name, justify="right", no_wrap=True)
    bars = width >= WIDE
    if bars:
        table.add_column("0" + "100".rjust(BAR - 1), no_wrap=True, width=BAR)
    rows = table_rows(report)
    for row, following in zip_longest(rows, rows[1:]):
        cells = _cells(report, row)
        last = following is not None and following.metric is not row.metric
        table.add_row(*(cells if bars else cells[:-1]), end_section=last)
    return table


def as_text(report: Report, width: int) -> str:
    """The table as plain text."""
    text = io.StringIO()
    console = Console(file=text, width=width, no_color=True, highlight=False)
    console.print(console_table(report, width))
    console.print(notes(report), markup=False)
    return text.getvalue()


def _repeated(report: Report) -> set[str]:
    """Rows of a family with the reference noises where the family itself was worst."""
    return {
        made["source"] + WITH_REFERENCES
        for made in report.distributions
        if made["fit"].get("with_references", {}).get("winner") == FAMILY
    }


def _title(report: Report) -> Text:
    name, data = report.classifier["name"], report.data["name"]
    inputs = report.data["inputs"]["evaluate"]
    budget = f"{report.budget['norm']} {report.budget['text']}"
    right = [row.inputs for row in report.results if row.metric in RELATIVE]
    counted = (
        f"{inputs:,} inputs of its evaluate part, {max(right, default=0):,} right without noise"
    )
    what = f"{name} on {data}, budget {budget}, seed {report.seed}"
    return Text.assemble((what, "bold"), "\n", counted)


def table_rows(report: Report) -> list[Result]:
    """The first result of every source, in the order of the theory: AR <= NPPR <= PR."""
    firsts: dict[tuple[str, Metric], Result] = {}
    repeated = _repeated(report)
    for row in report.results:
        if row.metric in ORDER and row.source not in repeated:
            firsts.setdefault((row.source, row.metric), row)
    return sorted(
        firsts.values(),
        key=lambda row: (ORDER.index(row.metric), 2.0 if row.value is None else row.value),
    )


def _cells(report: Report, row: Result) -> list[Text]:
    if row.value is None or row.low is None or row.high is None:
        outcome = Text("skipped" if row.flags else "failed", style="red")
        return [Text(label_of(row.metric)), Text(row.source), outcome, *[Text("-")] * 5]
    if row.metric is Metric.STRESS:
        return [Text(cell) for cell in _stress_cells(report, row, row.value, row.low, row.high)]
    ratio = report.headline(row.source, Metric.NORMALISED_ACCURACY)
    signs = {Direction.UPPER_BOUND: "<= ", Direction.LOWER_BOUND: ">= "}
    at_most = signs.get(row.direction or Direction.ESTIMATE, "")
    cells = [
        label_of(row.metric),
        row.source,
        at_most + percent(row.value),
        _range(row.low, row.high) + ("*" if row.flags else " "),
        _guaranteed(report, row),
        percent(ratio.value) if ratio is not None and ratio.value is not None else "",
        f"{row.draws:,}",
        _bar(row.value, row.low, row.high),
    ]
    return [Text(cell) for cell in cells]


def _stress_cells(report: Report, row: Result, value: float, low: float, high: float) -> list[str]:
    """A loss is no share: it has no axis, and its ratio is to the loss without noise."""
    ratio = report.headline(row.source, Metric.NORMALISED_STRESS)
    by_clean = "" if ratio is None or ratio.value is None else f"x {ratio.value:.3g}"
    interval = f"{low:.3g}-{high:.3g} "
    return [
        row.metric.value,
        row.source,
        f"{value:.3g}",
        interval,
        "",
        by_clean,
        f"{row.draws:,}",
        "",
    ]


def _guaranteed(report: Report, row: Result) -> str:
    """The interval of this number that holds at any size of sample.

    Under a search for bad noise only the upper end says something about the truth.
    """
    found = guaranteed(report, row)
    if found is None or found.low is None or found.high is None:
        return ""
    bound = row.direction is Direction.UPPER_BOUND
    return f"<= {percent(found.high)}" if bound else _range(found.low, found.high)


def _range(low: float, high: float) -> str:
    return f"{percent(low)}-{percent(high)}"


def _bar(value: float, low: float, high: float) -> str:
    """The value as a bar and its interval as a band, on an axis from 0 to 100 %."""
    end, first, last = (round(min(1.0, share) * BAR) for share in (value, low, high))
    band = range(min(first, BAR - 1), max(first + 1, last))
    return "".join("▒" if i in band else "█" if i < end else " " for i in range(BAR))
