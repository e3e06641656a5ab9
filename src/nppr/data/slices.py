"""Slices of the inputs: additional columns, such as weather or camera, from a CSV or parquet file.

A file has a header and a line for every image of the evaluated set, in its order: the position of a
line is the `index` in `per_input.csv`. The classes are a slice of every data set.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nppr.core.tally import BoolArray, IntArray
from nppr.data.arrow_tables import read_columns
from nppr.data.data_set import Data
from nppr.data.file_trees import join_names
from nppr.errors import DataError
from nppr.system.bounded import COLUMNS_LIMIT, OversizeError, read_text

CLASS = "class"
"""Name of the column of classes."""

EMPTY = "(empty)"
"""Name of the slice of inputs without a value."""

MOST_VALUES = 100
"""Most different values in a column; more would leave few inputs for each."""


@dataclass(frozen=True)
class Slice:
    """The inputs that have one value of a column; `rows` `(N,)` marks them among N inputs."""

    column: str
    name: str
    rows: BoolArray


def with_slices(data: Data, path: str | Path | None) -> Data:
    """Add the slices of a file, if any, which has a value for every image of the evaluated set."""
    if path is None:
        return data
    path = Path(path)
    try:
        columns = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    except (OSError, ValueError, OversizeError, csv.Error) as error:
        raise DataError(
            f"`slices` must be a CSV or parquet file, cannot read {str(path)!r}:"
            f" {join_names([str(error)])}"
        ) from error
    if not columns:
        raise DataError(f"`slices` must have a column with a name, got none in {str(path)!r}.")
    images = len(data.evaluate.images)
    for name, values in columns.items():
        if name == CLASS or not name or any(c.isspace() for c in name):
            raise DataError(
                f"`slices` must have columns named by one word other than {CLASS!r}, got {name!r} in"
                f" {str(path)!r}. Example: weather"
            )
        if len(values) != images:
            raise DataError(
                f"`slices` must have a line for each of the {images:,} images of {data.name!r}, in"
                f" their order, got {len(values):,} in {str(path)!r}."
            )
        if len(set(values)) > MOST_VALUES:
            raise DataError(
                f"`slices` must have at most {MOST_VALUES} different values in a column, got"
                f" {len(set(values)):,} in {name!r} of {str(path)!r}. Group them first."
            )
    return replace(data, slices=columns)


def slices_of(data: Data, indices: IntArray, labels: IntArray) -> dict[str, list[Slice]]:
    """Return the slices of inputs at these positions of the image set, by column, classes first."""
    found: dict[str, list[Slice]] = {}
    if data.classes > 1:
        names = enumerate(data.class_names)
        found[CLASS] = [Slice(CLASS, name, labels == label) for label, name in names]
    for column, values in data.slices.items():
        own = np.array(values, dtype=object)[indices]
        found[column] = [Slice(column, name, own == name) for name in sorted(set(values))]
    return found


def _csv(path: Path) -> dict[str, list[str]]:
    text = read_text(path, COLUMNS_LIMIT, "utf-8-sig")
    head, *lines = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
    if len(set(head)) < len(head):
        raise ValueError("two columns have the same name")
    ragged = next((at for at, line in enumerate(lines, 2) if len(line) != len(head)), None)
    if ragged is not None:
        raise ValueError(f"line {ragged} does not have as many cells as the header, {len(head)}")
    return {
        name.strip(): [line[at].strip() or EMPTY for line in lines] for at, name in enumerate(head)
    }


def _parquet(path: Path) -> dict[str, list[str]]:
    columns, _ = read_columns(path, None, COLUMNS_LIMIT)
    return {
        name: [EMPTY if value is None else str(value) or EMPTY for value in values]
        for name, values in columns.items()
    }
