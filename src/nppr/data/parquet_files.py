"""Parquet files read in batches of rows, so a small file cannot fill the memory.

A column of a file is stored in pages. The header of a page states the unpacked size of the page,
and a value is never longer than its page. The headers are therefore read first, and bound the size
of a batch of rows. A dictionary can still repeat one long value in every row, so batches are
counted when read.

Reference: Apache Parquet, file format, parquet.thrift; page headers are in Thrift's compact
protocol.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from nppr.data.file_trees import import_extra
from nppr.system.bounded import CHUNK_BYTES, MIB, Limit, open_regular

BATCH, MOST_ROWS = 64 * MIB, 1024
"""Most bytes and rows of a batch; Arrow cannot build a batch with more than 2 GiB of images."""

ROW = 128
"""Bytes counted for each row in addition to its values, which become Python objects."""

BOOLS, BYTE, NUMBERS, DOUBLE, BINARY, STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
"""Types of the compact protocol."""

UNPACKED, PACKED = 2, 3
"""Fields of a page header: the sizes of the page in memory and in the file."""


def read_columns(
    path: Path, names: Sequence[str] | None, limit: Limit, taken: int = 0
) -> tuple[dict[str, list[Any]], int]:
    """Read these columns, or all, as Python values; return the bytes taken, added to `taken`."""
    parquet = import_extra("pyarrow.parquet", "parquet")
    with (
        open_regular(path) as stream,
        # a buffer would keep everything read from the file until its end
        parquet.ParquetFile(
            path, page_checksum_verification=True, buffer_size=CHUNK_BYTES, pre_buffer=False
        ) as file,
    ):
        names = file.schema_arrow.names if names is None else names
        widths = _widths(file.schema, names)
        limit.require(taken + (ROW + sum(widths)) * file.metadata.num_rows)
        pages = _page_sizes(stream, file.metadata, names)
        limit.require(taken + sum(pages))
        rows = min(max(BATCH // max([1, *pages, *widths]), 1), MOST_ROWS)
        values: dict[str, list[Any]] = {name: [] for name in names}
        for batch in file.iter_batches(rows, columns=list(names)):
            batch.validate(full=True)
            taken += ROW * len(batch)
            for name, column in values.items():
                found = batch.column(name).to_pylist()
                taken += sum(map(_size, found))
                limit.require(taken)
                column += found
        return values, taken


def _widths(schema: Any, names: Sequence[str]) -> list[int]:
    """Return the width in bytes of fixed-width values, which also empty rows take; refuse lists."""
    columns = [schema.column(number) for number in range(len(schema.names))]
    columns = [column for column in columns if _is_among(column.path, names)]
    for column in columns:
        if column.max_repetition_level:
            raise ValueError(f"column {column.path} holds lists, one value per row is expected")
    return [max(column.length or 0, 0) for column in columns]


def _is_among(path: str, names: Sequence[str]) -> bool:
    """Whether a column is one of these, or a field of one; names may contain dots."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _size(value: Any) -> int:
    """Count the bytes of a value, in addition to `ROW`."""
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    return len(value) if isinstance(value, bytes | str) else 0


def _page_sizes(stream: IO[bytes], metadata: Any, names: Sequence[str]) -> list[int]:
    """Return the unpacked size in bytes of each page of these columns."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = (group.column(number) for group in groups for number in range(group.num_columns))
    return [
        page
        for column in columns
        if column.num_values and _is_among(column.path_in_schema, names)
        for page in _pages(stream, column)
    ]


def _pages(stream: IO[bytes], column: Any) -> Iterator[int]:
    """Yield the unpacked sizes of a column's pages in a row group, from the page headers."""
    start = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
        start = column.dictionary_page_offset
    end = start + column.total_compressed_size
    stream.seek(start)
    while stream.tell() < end:
        header = _read_struct(stream)
        unpacked, packed = header.get(UNPACKED, -1), header.get(PACKED, -1)
        if unpacked < 0 or packed < 0:
            raise ValueError("a page header without its size")
        yield unpacked
        stream.seek(packed, os.SEEK_CUR)


def _read_struct(stream: IO[bytes]) -> dict[int, int]:
    """Return the whole numbers of a Thrift struct by field, and skip everything else in it."""
    found: dict[int, int] = {}
    field = 0
    while head := _byte(stream):
        step, kind = head >> 4, head & 15
        field = field + step if step else _number(stream)
        if kind in NUMBERS:
            found[field] = _number(stream)
        elif kind == STRUCT:
            _read_struct(stream)
        elif kind in (BYTE, DOUBLE):
            stream.read(1 if kind == BYTE else 8)
        elif kind == BINARY:
            stream.seek(_varint(stream), os.SEEK_CUR)
        elif kind not in BOOLS:
            raise ValueError("a page header that cannot be read")
    return found


def _byte(stream: IO[bytes]) -> int:
    byte = stream.read(1)
    if not byte:
        raise ValueError("the file ends in a page header")
    return byte[0]


def _varint(stream: IO[bytes]) -> int:
    """Read a number with seven bits per byte, lowest bits first."""
    found = 0
    for shift in range(0, 70, 7):
        byte = _byte(stream)
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found
    raise ValueError("a number in a page header does not end")


def _number(stream: IO[bytes]) -> int:
    """Read a signed number: 0, -1, 1, -2, ... are stored as 0, 1, 2, 3, ..."""
    found = _varint(stream)
    return (found >> 1) ^ -(found & 1)
