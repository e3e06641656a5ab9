"""Parquet files in the layout of Hugging Face image data sets.

    train.parquet  test.parquet
    data/train-00000-of-00002.parquet  data/train-00001-of-00002.parquet  data/test-...
    train/0000.parquet  test/0000.parquet

Encoded images stay in memory as they are stored; they are decoded as they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nppr.data.arrow import columns_of, load_tables
from nppr.data.base import Data
from nppr.data.extras import require
from nppr.data.guard import check_magic, reading
from nppr.data.parts import choose_parts
from nppr.errors import DataError

__all__ = ["load_parquet"]

MAGIC = b"PAR1"
SHARD = re.compile(r"(?P<part>.+?)(-(?P<number>\d{5})-of-(?P<total>\d{5}))?(-[0-9a-f]{16})?")


def load_parquet(path: Path, names: Iterable[str], split: str | None, resize: int | None) -> Data:
    """One file, or the files of these names in a folder."""
    require("pyarrow", "parquet")
    shards = {_part_of(path): [path]} if path.is_file() else _shards(path, names)
    plan = choose_parts(shards, split)
    columns = columns_of(_schema(shards[plan.names[0]][0]), str(path))
    tables = {own: _read(shards[own], [columns.image, columns.label]) for own in plan.names}
    folder = path if path.is_dir() else path.parent
    return load_tables(path.name, plan, tables, columns, folder, resize)


def _shards(root: Path, names: Iterable[str]) -> dict[str, list[Path]]:
    """The files of each part, in order, none of them missing."""
    found: dict[str, list[Path]] = {}
    for name in names:
        found.setdefault(_part_of(root / name), []).append(root / name)
    for part, paths in found.items():
        if len({path.parent for path in paths}) > 1:
            raise DataError(
                f"`data` must have the files of the {part} part in one folder, got {paths[0]} and"
                f" {paths[-1]}. Give the folder of one of them."
            )
        _check_complete(paths)
    return found


def _part_of(path: Path) -> str:
    """The part that a file belongs to, from its name or, where that is a number, its folder's."""
    match = SHARD.fullmatch(path.stem)
    part = match["part"] if match else path.stem
    return path.parent.name if part.isdigit() else part


def _check_complete(paths: list[Path]) -> None:
    matches = [SHARD.fullmatch(path.stem) for path in paths]
    numbers = {int(match["number"]) for match in matches if match and match["number"]}
    totals = {int(match["total"]) for match in matches if match and match["total"]}
    missing = sorted(set(range(max(totals, default=0))) - numbers)
    if missing:
        raise DataError(
            f"`data` is incomplete: file {missing[0]:05d} of {max(totals):05d} beside {paths[0]}"
            " is missing."
        )


def _schema(path: Path) -> Any:
    check_magic(path, MAGIC, "a parquet file")
    with reading(str(path)):
        return require("pyarrow.parquet", "parquet").read_schema(path)


def _read(paths: list[Path], columns: list[str]) -> Any:
    """The two columns of all files of a part as one table."""
    arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    tables = []
    for path in paths:
        check_magic(path, MAGIC, "a parquet file")
        with reading(str(path)), parquet.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read(columns=columns)
            table.validate(full=True)
            tables.append(table.select(columns).replace_schema_metadata())
    with reading(str(paths[0].parent)):
        return arrow.concat_tables(tables)
