"""Arrow tables in the layout of Hugging Face image data: Parquet files, and data sets of the hub.

    train.parquet  test.parquet
    data/train-00000-of-00002.parquet  data/train-00001-of-00002.parquet  data/test-...
    train/0000.parquet  test/0000.parquet

A table has a column of images, encoded as `{bytes, path}` or as plain bytes, and a column of
labels. The schema's metadata name these columns and the classes; without metadata, the column types
decide. Encoded images of Parquet files stay in memory; the Arrow files of `datasets` are
memory-mapped. A row may name a file instead, which must be in the folder of the data.

Parquet files are read in batches of rows, so a small file cannot fill the memory. A column is stored
in pages. The header of a page states its unpacked size, and a value is never longer than its page:
the headers are read first, and bound the size of a batch. A dictionary can still repeat one long
value in every row, so batches are counted when read.

Reference: Apache Parquet, parquet.thrift; page headers are in Thrift's compact protocol.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from nppr.data.data_formats import DataFormat, SplitReaders
from nppr.data.file_trees import (
    Files,
    FolderFiles,
    check_magic,
    import_extra,
    join_names,
    place_inside,
    reading,
)
from nppr.data.image_sets import EncodedImages
from nppr.data.splits import TRAIN, Labelled
from nppr.errors import DataError
from nppr.system.bounded import (
    CHUNK_BYTES,
    ENCODED_IMAGE_LIMIT,
    MIB,
    Limit,
    encoded_limit,
    open_regular,
    read_bounded,
)

LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")
"""Names of the label column in order of preference, if several columns could hold the labels."""

SHARD = re.compile(r"(?P<split>.+?)(-(?P<number>\d{5})-of-(?P<total>\d{5}))?(-[0-9a-f]{16})?")
SAVED = ("dataset_dict.json", "dataset_info.json")
"""Files that only `save_to_disk` writes to the root of a folder."""

ADVICE = (
    "Give a folder, or the name of a data set of the hub that this machine can reach or has cached."
)


BATCH, MOST_ROWS = 64 * MIB, 1024
"""Most bytes and rows of a batch; Arrow cannot build a batch with more than 2 GiB of images."""

ROW = 128
"""Bytes counted for each row in addition to its values, which become Python objects."""

BOOLS, BYTE, NUMBERS, DOUBLE, BINARY, STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
"""Types of the compact protocol."""

UNPACKED, PACKED = 2, 3
"""Fields of a page header: the sizes of the page in memory and in the file."""


@dataclass(frozen=True, eq=False)
class ArrowImages(EncodedImages):
    """Encoded images of a column; a row may instead name a file in `folder`, if there is one."""

    column: Sequence[Any]
    origin: str
    folder: Path | None

    def __len__(self) -> int:
        return len(self.column)

    def read(self, position: int) -> bytes:
        with reading(self.where(position)):
            row = self.column[position]
            row = row.as_py() if hasattr(row, "as_py") else row
            content = row["bytes"] if isinstance(row, dict) else row
            if content is None and isinstance(row, dict) and row.get("path"):
                if self.folder is None:
                    raise ValueError("this row names a file, but the data have no folder")
                place = place_inside(self.folder, row["path"], self.where(position))
                with open_regular(place) as file:
                    content = read_bounded(file, ENCODED_IMAGE_LIMIT)
            if content is None:
                raise ValueError("there is no image in this row")
            return bytes(content)

    def where(self, position: int) -> str:
        return f"{self.origin}: row {position}"


def open_parquet(files: Files) -> SplitReaders:
    """Open one Parquet file, or all Parquet files in a folder at any depth."""
    import_extra("pyarrow", "parquet")
    root = files.path
    shards: dict[str, list[Path]] = {}
    for path in map(root.joinpath, _parquets(files)) if root.is_dir() else [root]:
        shards.setdefault(_split_of(path), []).append(path)
    if root.is_dir():
        for split, paths in shards.items():
            _check_complete(split, paths)
    return {split: functools.partial(_read_parquet, root, split, shards[split]) for split in shards}


def _parquets(files: Files) -> list[str]:
    """Return the names of the Parquet files in a folder; those in archives cannot be read."""
    found = [name for name in files.names if name.endswith(".parquet")]
    return found if isinstance(files, FolderFiles) else []


def _split_of(path: Path) -> str:
    """Return the split of a file: its name or, if that is a number, the name of its folder."""
    match = SHARD.fullmatch(path.stem)
    split = match["split"] if match else path.stem
    return path.parent.name if split.isdigit() else split


def _check_complete(split: str, paths: list[Path]) -> None:
    """Raise `DataError` unless all files of a split are there, in one folder."""
    if len({path.parent for path in paths}) > 1:
        raise DataError(
            f"`data` must have the files of the {split} split in one folder, got {paths[0]} and"
            f" {paths[-1]}. Give the folder of one of them."
        )
    matches = [match for path in paths if (match := SHARD.fullmatch(path.stem)) and match["total"]]
    total = max((int(match["total"]) for match in matches), default=0)
    for missing in sorted(set(range(total)) - {int(match["number"]) for match in matches}):
        raise DataError(
            f"`data` is incomplete: file {missing:05d} of {total:05d} beside {paths[0]} is missing."
        )


def _read_parquet(root: Path, split: str, paths: list[Path]) -> Labelled:
    """Read the image and the label column of all files of a split."""
    parquet = import_extra("pyarrow.parquet", "parquet")
    folder = root if root.is_dir() else root.parent
    for path in paths:
        if root.is_dir():
            place_inside(root, str(path.relative_to(root)), str(path))
        check_magic(path, b"PAR1", "a parquet file")
    with reading(str(paths[0])):
        image, label, class_names = _find_columns(parquet.read_schema(paths[0]), str(root))
        limit = encoded_limit(sum(path.stat().st_size for path in paths))
    rows: list[Any] = []
    labels: list[Any] = []
    taken = 0
    for path in paths:
        with reading(str(path)):
            found, taken = read_columns(path, [image, label], limit, taken)
        rows += found[image]
        labels += found[label]
    images = ArrowImages(rows, f"{root.name}, {split} split", folder)
    return _label(images, labels, class_names)


PARQUET = DataFormat(
    title="parquet files with images",
    open_splits=open_parquet,
    find=lambda files: [""] if _parquets(files) else [],
    is_fallback=True,
    suffixes=(".parquet",),
)


def open_hub(name: str) -> SplitReaders:
    """Open a data set of the Hugging Face hub, its cache or a local folder, through `datasets`."""
    library = import_extra("datasets", "hf")
    saved = any((Path(name) / file).is_file() for file in SAVED)
    if Path(name).is_dir():
        files = FolderFiles.of(Path(name))
        for each in files.names:
            files.place(each)
    with reading(f"hf:{name}", ADVICE), _without_progress_bars(library):
        try:
            found = (library.load_from_disk if saved else library.load_dataset)(name)
        except FileNotFoundError as error:
            raise DataError(f"`data` was not found: hf:{name}. {ADVICE}") from error
        sets = dict(found) if isinstance(found, dict) else {str(found.split or TRAIN[0]): found}
    return {split: functools.partial(_read_hub, name, split, sets[split]) for split in sets}


def _read_hub(name: str, split: str, dataset: Any) -> Labelled:
    image, label, class_names = _find_columns(dataset.features.arrow_schema, f"hf:{name}")
    with reading(f"hf:{name}", ADVICE):
        table = dataset.with_format("arrow")[:]
    images = ArrowImages(table[image], f"hf:{name}, {split} split", _folder_of(name, dataset))
    with reading("the column of labels"):
        return _label(images, table[label].to_pylist(), class_names)


def _folder_of(name: str, dataset: Any) -> Path | None:
    """Return the folder of files that rows name: the local folder, or the cache of the hub."""
    if Path(name).is_dir():
        return Path(name)
    if dataset.info.builder_name == "imagefolder":
        return Path(import_extra("datasets", "hf").config.HF_CACHE_HOME)
    return None


@contextmanager
def _without_progress_bars(library: Any) -> Iterator[None]:
    """Turn off the progress bars of `datasets` temporarily."""
    enabled = not library.are_progress_bars_disabled()
    library.disable_progress_bars()
    try:
        yield
    finally:
        if enabled:
            library.enable_progress_bars()


def _find_columns(schema: Any, where: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Find the image and the label column, and the names of the classes if they are known."""
    types = import_extra("pyarrow", "parquet").types
    features = _read_features(schema)

    def find(feature: str, fits: Callable[[Any], bool]) -> list[str]:
        marked = [name for name, kind in features.items() if kind.get("_type") == feature]
        return [
            name
            for name in marked or [field.name for field in schema if fits(field.type)]
            if name in schema.names
        ]

    images = find("Image", _holds_bytes)
    labels = find("ClassLabel", lambda kind: types.is_integer(kind) or types.is_string(kind))
    if not images or not labels:
        raise DataError(
            "`data` must have a column of encoded images and a column of labels,"
            f" got {join_names(schema.names) or 'no columns'} in {where}."
        )
    label = next((name for name in LABEL_NAMES if name in labels), labels[0])
    names = features.get(label, {}).get("names")
    known = tuple(str(name) for name in names) if isinstance(names, list) else None
    return images[0], label, known


def _read_features(schema: Any) -> dict[str, dict[str, Any]]:
    """Return the record of each column in the Hugging Face metadata; empty without metadata."""
    content = (schema.metadata or {}).get(b"huggingface")
    if content is None:
        return {}
    with reading("the Hugging Face metadata of the schema"):
        found = json.loads(content)["info"]["features"]
        return {field: kind for field, kind in found.items() if isinstance(kind, dict)}


def _holds_bytes(kind: Any) -> bool:
    types = import_extra("pyarrow", "parquet").types
    if types.is_struct(kind):
        return any(kind.field(number).name == "bytes" for number in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _label(images: ArrowImages, labels: list[Any], class_names: tuple[str, ...] | None) -> Labelled:
    if labels and all(isinstance(label, str) for label in labels):
        return Labelled(images, labels)
    if not all(type(label) is int and abs(label) < 2**62 for label in labels):
        raise DataError(
            "`labels` must be whole numbers or words in every row, got something else in"
            f" {images.origin}."
        )
    return Labelled(images, np.array(labels, dtype=np.int64), class_names)


HUGGING_FACE_HUB = DataFormat(title="a data set of the Hugging Face hub", open_name=open_hub)


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
