"""A comparison for the console."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from nppr.compare.schema import Comparison
from nppr.compare.tables import differences_table, values_table
from nppr.compare.wording import answer
from nppr.report.exports import Table as Exported

__all__ = ["console_tables", "summary"]

NARROW = ("metric", "source", "pair", "difference", "interval", "separated")
"""Columns of the differences that fit a console."""


def console_tables(comparison: Comparison) -> list[Table]:
    """The values, and the differences if there are any."""
    tables = [_rich(values_table(comparison))]
    if any(result.differences for result in comparison.results):
        full = differences_table(comparison)
        kept = [at for at, column in enumerate(full.columns) if column.name in NARROW]
        rows = tuple(tuple(row[at] for at in kept) for row in full.rows)
        tables.append(_rich(Exported(full.caption, tuple(full.columns[at] for at in kept), rows)))
    return tables


def summary(comparison: Comparison) -> str:
    """The answer and the notes."""
    return "\n".join([answer(comparison), *comparison.notes])


def _rich(exported: Exported) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        title=Text(exported.caption),
        title_justify="left",
        title_style="",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for column in exported.columns:
        table.add_column(
            Text(column.heading),
            justify="right" if column.number else "left",
            no_wrap=column.interval,
            overflow="fold",
        )
    for row in exported.rows:
        table.add_row(*(Text(cell.text, style="bold" if cell.strong else "") for cell in row))
    return table
