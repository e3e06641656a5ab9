"""Tables that leave the program: Markdown and LaTeX for readers, CSV and JSON for programs.

A cell holds a value and its printed text. CSV and JSON hold values at full precision; Markdown and
LaTeX hold what is printed. Everything that has a meaning in one of these languages is escaped.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nppr.report.exports.escaping import latex_text, md_text

__all__ = ["FORMATS", "Cell", "Column", "Table", "Value"]

MINUS = re.compile(r"(?<![\w.])-(?=\d)")
RANGE = re.compile(r"(?<=\d)-(?=\d)")

Value = str | int | float | bool | tuple[float, float] | None


@dataclass(frozen=True)
class Column:
    """A column: its name for programs, its heading for readers.

    An `interval` has values `(low, high)` and is two columns for programs.
    """

    name: str
    heading: str
    number: bool = False
    interval: bool = False


@dataclass(frozen=True)
class Cell:
    """A value and how it is printed; `strong` is printed bold."""

    value: Value
    text: str
    strong: bool = False

    @classmethod
    def of(cls, value: Value) -> Cell:
        """A cell that is printed as it is."""
        return cls(value, "" if value is None else str(value))


@dataclass(frozen=True)
class Table:
    """Columns and rows of cells, with a caption."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    @property
    def printed(self) -> Table:
        """What readers see: without the columns that are empty throughout."""
        kept = [
            number
            for number in range(len(self.columns))
            if not self.rows or any(row[number].text for row in self.rows)
        ]
        rows = tuple(tuple(row[number] for number in kept) for row in self.rows)
        return Table(self.caption, tuple(self.columns[number] for number in kept), rows)

    def to_md(self) -> str:
        """A pipe table."""
        shown = self.printed
        head = [md_text(column.heading) for column in shown.columns]
        rule = ["---:" if column.number else ":---" for column in shown.columns]
        rows = [[_marked(md_text, cell, "**", "**") for cell in row] for row in shown.rows]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, rule, *rows])

    def to_latex(self) -> str:
        r"""A `table` of `booktabs` (`\usepackage{booktabs}`)."""
        shown = self.printed
        aligned = "".join("r" if column.number else "l" for column in shown.columns)
        head = [latex_text(column.heading) for column in shown.columns]
        rows = [
            [_latex_cell(*pair) for pair in zip(shown.columns, row, strict=True)]
            for row in shown.rows
        ]
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_text(self.caption)}}}",
            rf"\begin{{tabular}}{{{aligned}}}",
            r"\toprule",
            _latex_row(head),
            r"\midrule",
            *(_latex_row(row) for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Comma-separated values at full precision; what is not known is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self._names())
        for record in self._records():
            writer.writerow([_csv_cell(value) for value in record.values()])
        return text.getvalue()

    def to_json(self) -> str:
        """A list with an object for each row."""
        return json.dumps(self._records(), indent=2, ensure_ascii=False) + "\n"

    def _names(self) -> list[str]:
        names = []
        for column in self.columns:
            ends = (f"{column.name}_low", f"{column.name}_high")
            names += list(ends) if column.interval else [column.name]
        return names

    def _records(self) -> list[dict[str, Value]]:
        records = []
        for row in self.rows:
            values: list[Value] = []
            for column, cell in zip(self.columns, row, strict=True):
                if column.interval:
                    assert cell.value is None or isinstance(cell.value, tuple)
                    values += cell.value or (None, None)
                else:
                    values.append(cell.value)
            records.append(dict(zip(self._names(), values, strict=True)))
        return records


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "md": Table.to_md, "csv": Table.to_csv, "latex": Table.to_latex, "json": Table.to_json,
}  # fmt: skip
"""The renderings of a table by the names of the command line."""


def _latex_cell(column: Column, cell: Cell) -> str:
    text = _marked(latex_text, cell, r"\textbf{", "}")
    return RANGE.sub("--", MINUS.sub("$-$", text)) if column.number else text


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _marked(escape: Callable[[str], str], cell: Cell, before: str, after: str) -> str:
    text = escape(cell.text)
    return f"{before}{text}{after}" if cell.strong and text else text


def _csv_cell(value: Value) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
