"""The one table of the project: terminal, page, Markdown, LaTeX, CSV and JSON.

A cell holds a value and its printed text. CSV and JSON hold values at full precision; everything else
holds what is printed. What has a meaning in one of these languages is escaped.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Literal, Protocol

from markupsafe import Markup
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from nppr.errors import mark_controls

Value = str | int | float | bool | tuple[float, float] | None
Output = Literal["page", "markdown", "latex", "data"]

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$",
    "[": "{[}", "]": "{]}", "*": "{*}",
})  # fmt: skip
"""Brackets and stars are in braces: at the start of a row they would belong to the line break."""

_ASCII = str.maketrans({"≤": "<=", "≥": ">="})
"""For terminals whose encoding has no such letters."""

_MARKDOWN = re.compile(r"([\\|`*_\[\]<>#])")
_MINUS = re.compile(r"(?<![\w.])-(?=\d)")
_RANGE = re.compile(r"(?<=\d)-(?=\d)")


class CellPart(Protocol):
    """A piece of a cell that a page renders in a special way; `str` gives its text."""

    def __html__(self) -> str: ...


@dataclass(frozen=True)
class Column:
    """A column: its name for programs, its heading for readers.

    An `interval` has values `(low, high)` and is two columns for programs. `terminal` is the width from
    which a terminal has room for it, None for never; `outside` lists the other outputs without it, of
    which "data" are CSV, JSON and data frames.
    """

    name: str
    heading: str
    number: bool = False
    interval: bool = False
    terminal: int | None = 0
    outside: tuple[Output, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names for programs; the ends of an unnamed interval are `low` and `high`."""
        ends = tuple(f"{self.name}_{end}".lstrip("_") for end in ("low", "high"))
        return ends if self.interval else (self.name,)

    def values(self, cell: Cell) -> tuple[Value, ...]:
        """Return the value of the cell under each of the names."""
        if not self.interval:
            return (cell.value,)
        assert cell.value is None or isinstance(cell.value, tuple)
        return cell.value or (None, None)


@dataclass(frozen=True)
class Cell:
    """A value and how it is printed; `strong` is printed bold, `parts` are what `text` was made of."""

    value: Value
    text: str
    strong: bool = False
    parts: tuple[str | CellPart, ...] = ()

    @classmethod
    def of(cls, value: Value) -> Cell:
        """A cell that is printed as it is."""
        return cls(value, "" if value is None else str(value))

    @classmethod
    def made_of(cls, value: Value, *parts: str | CellPart) -> Cell:
        """A cell whose text is that of its parts."""
        return cls(value, "".join(map(str, parts)), parts=parts)

    def __html__(self) -> str:
        text = Markup("").join(self.parts or (self.text,))
        return Markup("<strong>{}</strong>").format(text) if self.strong else text


EMPTY = Cell(None, "")


@dataclass(frozen=True)
class Table:
    """Columns and rows of cells, with a caption.

    In a `grouped` table a rule separates rows whose first cells differ; a page highlights row `marked`.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    grouped: bool = False
    marked: int | None = None

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    @property
    def printed(self) -> Table:
        """The table without the columns that are empty throughout."""
        if not self.rows:
            return self
        return self._with(
            [any(cell.text for cell in cells) for cells in zip(*self.rows, strict=True)]
        )

    def to_rich(self, width: int = 80) -> RichTable:
        """The table for a terminal of this width."""
        shown = self._with([c.terminal is not None and c.terminal <= width for c in self.columns])
        table = RichTable(
            box=box.SIMPLE_HEAD,
            title=Text(self.caption) if self.caption else None,
            title_justify="left",
            title_style="",
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_header=any(column.heading for column in shown.columns),
        )
        for column in shown.columns:
            table.add_column(
                Text(column.heading),
                justify="right" if column.number else "left",
                no_wrap=column.interval,
                overflow="fold",
            )
        for number, row in enumerate(shown.rows):
            plain = [mark_controls(cell.text).translate(_ASCII) for cell in row]
            bold = ["bold" if cell.strong else "" for cell in row]
            table.add_row(*map(Text, plain, bold), end_section=self._starts_group(number + 1))
        return table

    def to_html(self, label: str, name: str = "", *, sortable: bool = True) -> Markup:
        """The table in a region that scrolls; `label` describes it, `name` is its id."""
        shown = self._for("page").printed
        head = Markup("").join(
            Markup('<th scope="col"{}>{}</th>').format(Markup(' class="n"' * c.number), c.heading)
            for c in shown.columns
        )
        rows = Markup("").join(shown._html_row(at) for at in range(len(shown.rows)))
        return Markup(
            '<div class="scroll" role="region" aria-label="{}" tabindex="0">\n'
            "<table{}{}>\n<thead><tr>{}</tr></thead>\n"
            "<tbody>\n{}</tbody>\n</table>\n</div>"
        ).format(
            label,
            Markup(' class="sortable"' * sortable),
            Markup(' id="{}"').format(name) if name else "",
            head,
            rows,
        )

    def to_md(self) -> str:
        """A pipe table."""
        shown = self._for("markdown").printed
        head = [md_text(column.heading) for column in shown.columns]
        rule = ["---:" if column.number else ":---" for column in shown.columns]
        rows = [[_marked(md_text, cell, "**", "**") for cell in row] for row in shown.rows]
        return "".join(f"| {' | '.join(cells)} |\n" for cells in [head, rule, *rows])

    def to_latex(self) -> str:
        r"""A `table` of `booktabs` (`\usepackage{booktabs}`)."""
        shown = self._for("latex").printed
        aligned = "".join("r" if column.number else "l" for column in shown.columns)
        head = [latex_text(column.heading) for column in shown.columns]
        rows = [map(_latex_cell, shown.columns, row) for row in shown.rows]
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_text(self.caption)}}}",
            rf"\begin{{tabular}}{{{aligned}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
            *(" & ".join(row) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Comma-separated values at full precision; unknown ones are empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(name for each in self._for("data").columns for name in each.names)
        for record in self.records():
            writer.writerow(map(_csv_value, record.values()))
        return text.getvalue()

    def to_json(self) -> str:
        """A list with an object for each row."""
        return json.dumps(self.records(), indent=2, ensure_ascii=False) + "\n"

    def records(self) -> list[dict[str, Value]]:
        """Return the rows as programs read them: the values of each column that files have."""
        shown = self._for("data")
        return [
            {
                name: value
                for column, cell in zip(shown.columns, row, strict=True)
                for name, value in zip(column.names, column.values(cell), strict=True)
            }
            for row in shown.rows
        ]

    def _with(self, kept: Sequence[bool]) -> Table:
        """The columns that are kept."""
        rows = tuple(tuple(compress(row, kept)) for row in self.rows)
        return replace(self, columns=tuple(compress(self.columns, kept)), rows=rows)

    def _for(self, output: Output) -> Table:
        return self._with([output not in column.outside for column in self.columns])

    def _starts_group(self, number: int) -> bool:
        if not (self.grouped and 0 < number < len(self.rows)):
            return False
        return self.rows[number][0].text != self.rows[number - 1][0].text

    def _html_row(self, number: int) -> Markup:
        classes = ["first"] * self._starts_group(number) + ["headline"] * (number == self.marked)
        cells = Markup("").join(map(_html_cell, self.columns, self.rows[number]))
        return Markup('<tr class="{}">{}</tr>\n').format(" ".join(classes), cells)


FORMATS: Mapping[str, Callable[[Table], str]] = {
    "md": Table.to_md, "csv": Table.to_csv, "latex": Table.to_latex, "json": Table.to_json,
}  # fmt: skip
"""The renderings of a table in files, by the names of the command line."""


def latex_text(text: str) -> str:
    r"""Plain text as LaTeX.

    >>> latex_text("50 % of a_b, ±1")
    '50 \\% of a\\_b, $\\pm$1'
    """
    return _one_line(text).translate(_LATEX)


def md_text(text: str) -> str:
    r"""Plain text as Markdown within a table.

    >>> md_text("a|b <script>")
    'a\\|b \\<script\\>'
    """
    return _MARKDOWN.sub(r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _csv_value(value: Value) -> Value:
    r"""A value that no spreadsheet takes for a formula, on one line.

    >>> _csv_value("=1+1"), _csv_value(-1.5), _csv_value("a\x1b"), _csv_value(True)
    ("'=1+1", -1.5, 'a', 'true')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    text = _one_line(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _html_cell(column: Column, cell: Cell) -> Markup:
    """A cell sorts by its value, an interval by its upper end."""
    if not column.number:
        return Markup('<td class="{}">{}</td>').format(column.name, cell)
    value = cell.value[1] if isinstance(cell.value, tuple) else cell.value
    return Markup('<td class="n" data-sort="{}">{}</td>').format(
        "" if value is None else value, cell
    )


def _latex_cell(column: Column, cell: Cell) -> str:
    text = _marked(latex_text, cell, r"\textbf{", "}")
    return _RANGE.sub("--", _MINUS.sub("$-$", text)) if column.number else text


def _marked(escape: Callable[[str], str], cell: Cell, before: str, after: str) -> str:
    text = escape(cell.text)
    return f"{before}{text}{after}" if cell.strong and text else text
