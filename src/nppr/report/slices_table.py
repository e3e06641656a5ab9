"""The numbers by slice: one table for the terminal, files and the page."""

from __future__ import annotations

from nppr.core.tally import Direction
from nppr.report.findings import worst_slices
from nppr.report.model import ReportRecord
from nppr.report.printed_numbers import Numbers, percent
from nppr.report.tables import Cell, Column, Table

CLASS = "class"
"""The column that every run has; the page shows it as bars."""


def slices_table(report: ReportRecord) -> Table:
    """A row for every slice of the columns beside the data, the worst of each column first."""
    numbers, worst = Numbers(report), worst_slices(report)
    level = f"{100 * report.settings.measure.confidence:g} %"
    columns = (
        Column("column", "column"),
        Column("slice", "slice"),
        Column("value", "observed %", number=True),
        Column("", f"{level} interval, all of a column together", number=True, interval=True),
        Column("inputs", "inputs", number=True),
    )
    rows = []
    for at, row in enumerate(report.slices):
        if row.column == CLASS:
            continue
        upper = row.direction is Direction.UPPER_BOUND
        ends = (
            numbers.at("at-least", "slices", at, "low"),
            numbers.at("at-most", "slices", at, "high"),
        )
        interval = ("≤ ", ends[1]) if upper else (ends[0], "-", ends[1])
        rows.append(
            (
                Cell.of(row.column),
                Cell(row.name, row.name, strong=row is worst[row.column]),
                Cell.made_of(row.value, numbers.at("percent", "slices", at, "value")),
                Cell.made_of((row.low, row.high), *interval),
                Cell.made_of(row.inputs, numbers.at("count", "slices", at, "inputs")),
            )
        )
    return Table("", columns, tuple(rows), grouped=True)


def worst_words(report: ReportRecord) -> str:
    """The worst slice of each column beside the data, in a sentence; empty without any."""
    worst = [row for row in worst_slices(report).values() if row.column != CLASS]
    named = ", ".join(
        f"{row.column} {row.name} ({percent(row.value)} % observed, {row.inputs:,} inputs)"
        for row in worst
    )
    return f"The lowest slices observed under {worst[0].source}: {named}." if worst else ""
