"""One line per input and source: the table behind every number of a report."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from nppr.core.tally import Evaluate, Tally
from nppr.errors import DataError, RunFolderError
from nppr.statistics import estimate_per_input as intervals
from nppr.system.bounded import open_regular
from nppr.system.records import write_whole

PER_INPUT = "per_input.csv"

_KINDS: dict[str, type] = {
    "index": int, "label": int, "clean_correct": int, "source": str, "draws": int, "correct": int,
    "rate": float, "low": float, "high": float,
}  # fmt: skip
COLUMNS = tuple(_KINDS)

_PRINTED = 1e-5
"""Precision to which a rate is printed."""


@dataclass(frozen=True, eq=False)
class PerInput:
    """Columns of equal length, see `docs/report.md`; lines of a source are together."""

    columns: Mapping[str, np.ndarray[Any, Any]]

    def __len__(self) -> int:
        return len(self.columns["index"])

    def __getitem__(self, column: str) -> np.ndarray[Any, Any]:
        return self.columns[column]

    @property
    def sources(self) -> list[str]:
        """The sources in the order of the lines."""
        return list(dict.fromkeys(self["source"].tolist()))

    def of(self, source: str) -> PerInput:
        """The lines of one source."""
        return self.at(self["source"] == source)

    def at(self, places: np.ndarray[Any, Any]) -> PerInput:
        """The lines at some places, in this order, or those for which a mask is true."""
        return PerInput({name: column[places] for name, column in self.columns.items()})

    def to_csv(self) -> str:
        """The text of `per_input.csv`."""
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        for row in zip(*(self[name].tolist() for name in COLUMNS), strict=True):
            writer.writerow(f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row)
        return text.getvalue()

    def to_parquet(self, path: str | Path) -> None:
        """Write the columns at full precision as parquet; needs the extra `parquet`."""
        try:
            arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        except ImportError as error:
            raise DataError(
                "`per_input` as parquet needs the package pyarrow, which cannot be imported."
                " Install it: pip install 'nppr[parquet]'"
            ) from error
        kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
        arrays = [arrow.array(self[name].tolist(), kinds[kind]) for name, kind in _KINDS.items()]
        content = arrow.BufferOutputStream()
        parquet.write_table(arrow.Table.from_arrays(arrays, COLUMNS), content)
        write_whole(path, content.getvalue().to_pybytes())

    def faults(self, classes: int, inputs: int) -> Iterator[str]:
        """Yield the faults of these lines, given the number of classes and inputs."""
        limits: dict[str, tuple[float, Any]] = {
            "label": (0, classes - 1),
            **dict.fromkeys(("clean_correct", "rate", "low", "high"), (0, 1)),
            "draws": (1, np.inf),
            "correct": (0, self["draws"]),
        }
        for column, (low, high) in limits.items():
            values = self[column]
            for place in _places(~((values >= low) & (values <= high))):
                most = np.broadcast_to(high, len(self))[place]
                yield f"line {place + 2} {column!r} is {values[place]}, not in [{low}, {most}]"
        for place in _places(~(np.abs(self["rate"] - self["correct"] / self["draws"]) <= _PRINTED)):
            yield f"line {place + 2} 'rate' is not 'correct' / 'draws'"
        for source in self.sources:
            lines = self.of(source)["index"].tolist()
            if (len(lines), len(set(lines))) != (inputs, inputs):
                yield f"{source!r} has {len(lines)} lines of {len(set(lines))} inputs, not {inputs}"


def _places(wrong: np.ndarray[Any, Any]) -> list[int]:
    found: list[int] = np.flatnonzero(wrong).tolist()
    return found


def per_input_of(tallies: Mapping[str, Tally[Evaluate]], confidence: float) -> PerInput:
    """The lines of all tallies, with the exact binomial interval of every input."""
    columns: dict[str, list[np.ndarray[Any, Any]]] = {name: [] for name in COLUMNS}
    for source, tally in tallies.items():
        number = len(tally.indices)
        found = (
            tally.indices,
            tally.labels,
            tally.clean_correct.astype(np.int64),
            np.full(number, source, dtype=object),
            np.full(number, tally.draws),
            tally.correct,
            tally.rates,
            *intervals(tally, confidence),
        )
        for name, column in zip(COLUMNS, found, strict=True):
            columns[name].append(column)
    return PerInput(
        {name: np.concatenate(each) if each else np.array([]) for name, each in columns.items()}
    )


def read_per_input(path: str | Path) -> PerInput:
    """Read a `per_input.csv`; a file that is not one gives one clear line with its number."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
            head = next(reader, [])
            if tuple(head) != COLUMNS:
                raise ValueError(
                    f"its header must be {','.join(COLUMNS)}, got {','.join(head)[:200]}"
                )
            rows = [_row(number, row) for number, row in enumerate(reader, start=2)]
    except (OSError, ValueError, csv.Error) as error:
        raise RunFolderError(
            f"`run` must hold a {PER_INPUT}, cannot read {path}: {error}."
            " Repeat the run's command to write it again."
        ) from error
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    return PerInput(
        {
            name: np.array(column, dtype=object if kind is str else kind)
            for (name, kind), column in zip(_KINDS.items(), columns, strict=True)
        }
    )


def _row(number: int, cells: list[str]) -> list[Any]:
    try:
        if len(cells) != len(COLUMNS):
            raise ValueError(f"{len(COLUMNS)} cells expected, got {len(cells)}")
        return [kind(cell) for kind, cell in zip(_KINDS.values(), cells, strict=True)]
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error
