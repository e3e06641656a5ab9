"""Arrow tables with the columns of Hugging Face image data: an image and a label.

Images are encoded, as `{bytes, path}` or as plain bytes. The schema's metadata says which columns they
are and what the classes are called; without it, the types of the columns decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nppr.data.base import Data
from nppr.data.encoded import EncodedImages, first_frame
from nppr.data.extras import require
from nppr.data.guard import reading, shown
from nppr.data.parts import Labelled, Plan, assemble
from nppr.errors import DataError
from nppr.types import IntArray

__all__ = ["ArrowBlobs", "Columns", "columns_of", "load_tables"]

METADATA = b"huggingface"
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")
"""The column that is taken where several could hold the labels, the first best."""


@dataclass(frozen=True)
class Columns:
    """Names of the image and the label column, and of the classes where they are known."""

    image: str
    label: str
    class_names: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class ArrowBlobs:
    """Encoded images of a column; where a row has a path only, the file is read."""

    column: Any
    origin: str
    folder: Path

    def __len__(self) -> int:
        return len(self.column)

    def read(self, position: int) -> bytes:
        with reading(self.where(position)):
            row = self.column[position].as_py()
            content = row["bytes"] if isinstance(row, dict) else row
            if content is None and isinstance(row, dict) and row.get("path"):
                content = (self.folder / row["path"]).read_bytes()
            if content is None:
                raise ValueError("there is no image in this row")
            return bytes(content)

    def where(self, position: int) -> str:
        return f"{self.origin}: row {position}"


def load_tables(
    name: str,
    plan: Plan,
    tables: Mapping[str, Any],
    columns: Columns,
    folder: Path,
    resize: int | None,
) -> Data:
    """Data from one table for each part that the plan names."""
    blobs = {
        own: ArrowBlobs(table[columns.image], f"{name}, {own} part", folder)
        for own, table in tables.items()
    }
    frame = first_frame(blobs[plan.names[0]], resize)
    labels, class_names = _labels(
        {own: table[columns.label] for own, table in tables.items()}, columns.class_names
    )
    parts = {own: Labelled(EncodedImages(blobs[own], frame), labels[own]) for own in tables}
    return assemble(name, plan, parts, class_names)


def columns_of(schema: Any, where: str) -> Columns:
    """Which columns hold the images and the labels."""
    types = require("pyarrow", "parquet").types
    features = _features(schema)
    images = [field for field, kind in features.items() if kind.get("_type") == "Image"] or [
        field.name for field in schema if _holds_bytes(field.type, types)
    ]
    labels = [field for field, kind in features.items() if kind.get("_type") == "ClassLabel"] or [
        field.name
        for field in schema
        if types.is_integer(field.type) or types.is_string(field.type)
    ]
    images = [name for name in images if name in schema.names]
    labels = [name for name in labels if name in schema.names]
    if not images or not labels:
        raise DataError(
            "`data` must have a column of encoded images and a column of labels,"
            f" got {shown(schema.names) or 'no columns'} in {where}."
        )
    label = next((name for name in LABEL_NAMES if name in labels), labels[0])
    names = features.get(label, {}).get("names")
    known = tuple(str(name) for name in names) if isinstance(names, list) else None
    return Columns(images[0], label, known)


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """What the metadata says about each column; nothing where there is none."""
    content = (schema.metadata or {}).get(METADATA)
    if content is None:
        return {}
    with reading("the Hugging Face metadata of the schema"):
        found = json.loads(content)["info"]["features"]
        return {field: kind for field, kind in found.items() if isinstance(kind, dict)}


def _holds_bytes(kind: Any, types: Any) -> bool:
    if types.is_struct(kind):
        return any(kind.field(number).name == "bytes" for number in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _labels(
    columns: Mapping[str, Any], names: tuple[str, ...] | None
) -> tuple[dict[str, IntArray], tuple[str, ...] | None]:
    """Labels of each part as numbers; labels that are words are numbered in sorted order."""
    with reading("the column of labels"):
        values = {own: column.to_pylist() for own, column in columns.items()}
    found = {value for column in values.values() for value in column}
    if found and all(isinstance(value, str) for value in found):
        names = tuple(sorted(found))
        numbers = {name: number for number, name in enumerate(names)}
        values = {own: [numbers[value] for value in column] for own, column in values.items()}
    elif not all(type(value) is int and abs(value) < 2**62 for value in found):
        raise DataError("`labels` must be whole numbers or words in every row, got something else.")
    return {own: np.array(column, dtype=np.int64) for own, column in values.items()}, names
