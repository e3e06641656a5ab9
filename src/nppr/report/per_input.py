"""One line an input and source: the table behind every number of a report."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nppr.data import require
from nppr.errors import DataError, RunFolderError
from nppr.report.writing import write_whole
from nppr.statistics import per_input as intervals
from nppr.types import Evaluate, Tally

__all__ = ["COLUMNS", "FILE", "PerInput", "per_input_of", "read_per_input"]

FILE = "per_input.csv"
COLUMNS = ("index", "label", "clean_correct", "source", "draws", "right", "rate", "low", "high")
KINDS: dict[str, type] = {
    "index": int, "label": int, "clean_correct": int, "source": str, "draws": int, "right": int,
    "rate": float, "low": float, "high": float,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class PerInput:
    """Columns of equal length, see `docs/report.md`; lines of a source stand together."""

    columns: Mapping[str, np.ndarray[Any, Any]]

    def __len__(self) -> int:
        return len(self.columns["index"])

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        return self.columns[column]

    @property
    def sources(self) -> list[str]:
        """The sources in the order of the lines."""
        return list(dict.fromkeys(self.columns["source"].tolist()))

    def of(self, source: str) -> PerInput:
        """The lines of one source."""
        rows = self.columns["source"] == source
        return PerInput({name: column[rows] for name, column in self.columns.items()})

    def lines(self) -> Iterator[list[str]]:
        """The lines as text, without the head."""
        values = [self.columns[name].tolist() for name in COLUMNS]
        for row in zip(*values, strict=True):
            yield [f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row]

    def to_csv(self) -> str:
        """The text of `per_input.csv`."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        writer.writerows(self.lines())
        return text.getvalue()

    def to_parquet(self, path: str | Path) -> None:
        """Write the columns at full precision as parquet; needs the extra `parquet`."""
        try:
            arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
        except DataError as error:
            raise DataError(
                "`per_input` as parquet needs the package pyarrow, which cannot be imported."
                " Install it: pip install 'nppr[parquet]'"
            ) from error
        kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
        arrays = [arrow.array(self[name].tolist(), kinds[KINDS[name]]) for name in COLUMNS]
        content = arrow.BufferOutputStream()
        parquet.write_table(arrow.Table.from_arrays(arrays, COLUMNS), content)
        write_whole(path, content.getvalue().to_pybytes())


def per_input_of(tallies: Mapping[str, Tally[Evaluate]], confidence: float) -> PerInput:
    """The lines of all tallies, with the exact binomial interval of every input."""
    parts: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in COLUMNS}
    for source, tally in tallies.items():
        low, high = intervals(tally, confidence)
        number = len(tally.indices)
        found = (
            tally.indices,
            tally.labels,
            tally.clean_correct.astype(np.int64),
            np.full(number, source, dtype=object),
            np.full(number, tally.draws),
            tally.right,
            tally.rates,
            low,
            high,
        )
        for name, column in zip(COLUMNS, found, strict=True):
            parts[name].append(column)
    return PerInput(
        {name: np.concatenate(found) if found else np.array([]) for name, found in parts.items()}
    )


def read_per_input(path: str | Path) -> PerInput:
    """Read a `per_input.csv`; what is not one gives one clear line with its number."""
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            head = next(reader, [])
            if tuple(head) != COLUMNS:
                raise ValueError(
                    f"its head must be {','.join(COLUMNS)}, got {','.join(head)[:200]}"
                )
            rows: list[list[Any]] = []
            for number, row in enumerate(reader, start=2):
                try:
                    if len(row) != len(COLUMNS):
                        raise ValueError(f"{len(COLUMNS)} cells expected, got {len(row)}")
                    cells = zip(KINDS.values(), row, strict=True)
                    rows.append([kind(cell) for kind, cell in cells])
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
    except (OSError, ValueError, csv.Error) as error:
        raise RunFolderError(f"`run` must hold a {FILE}, cannot read {path}: {error}.") from error
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    return PerInput(
        {
            name: np.array(column, dtype=object if KINDS[name] is str else KINDS[name])
            for name, column in zip(COLUMNS, columns, strict=True)
        }
    )
