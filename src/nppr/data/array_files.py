"""Arrays in files: `.npz`, and MNIST-style idx files, compressed with gzip or not.

A `.npz` holds `x` and `y`, or `x_train`, `y_train`, `x_test`, `y_test`. Images are 8-bit, or floats
in [0, 1], with shape `(N, C, H, W)`, `(N, H, W, C)` or `(N, H, W)`; with a stated range, inputs may
have any shape and type of number. They stay in memory as they are stored.

An idx file has a short header with the shape, then bytes:

    train-images-idx3-ubyte  train-labels-idx1-ubyte  t10k-images-idx3-ubyte  t10k-labels-idx1-ubyte

Reference: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits, 1998.
"""

from __future__ import annotations

import functools
import gzip
import io
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nppr.data.data_formats import DataFormat, SplitReaders, find_folders
from nppr.data.file_trees import GZIP_MAGIC, Files, ZipFiles, join_names, reading
from nppr.data.image_sets import StoredImages, channels_first
from nppr.data.splits import ONLY_SPLIT, Labelled
from nppr.errors import DataError
from nppr.system.bounded import (
    LABELS_LIMIT,
    Limit,
    array_limit,
    open_member,
    open_regular,
    read_up_to,
)

LONGEST_HEADER = 1 << 14
"""Longest header in bytes. numpy reads a header of any length before it refuses a long one."""

NAME = re.compile(r"(train|t10k|test|val|validation)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")
GZIP_GROWTH = 1032
"""Most bytes that gzip can make of one byte; a header that announces more is damaged."""

UNSIGNED_BYTE = 8


@dataclass(frozen=True)
class _Header:
    """The shape and type that an array's header announces, and the header's length in bytes."""

    shape: tuple[int, ...]
    columns_first: bool
    kind: np.dtype[Any]
    length: int

    def __str__(self) -> str:
        return f"{self.shape} {self.kind}"

    @property
    def size(self) -> int:
        """The size of the array in bytes."""
        return math.prod(self.shape) * self.kind.itemsize


def open_arrays(files: Files, *, as_images: bool = False) -> SplitReaders:
    """Open the splits in a `.npz`, with arrays as they are stored or as images; refuse pickles."""
    path = files.path
    stems = [name.removesuffix(".npy") for name in ZipFiles.of(path).names]
    suffixes = [stem[1:] for stem in stems if stem == "x" or stem.startswith("x_")]
    if not suffixes:
        raise DataError(
            "`data` must have arrays x and y, or x_train, y_train, x_test and y_test,"
            f" got {join_names(stems)} in {path}."
        )
    arrays = [f"{letter}{suffix}" for suffix in suffixes for letter in "xy"]
    _check_sizes(path, [name for name in arrays if name in stems])
    return {
        suffix[1:] or ONLY_SPLIT: functools.partial(_read_split, path, suffix, as_images)
        for suffix in suffixes
    }


def _check_sizes(path: Path, names: list[str]) -> None:
    """Raise `DataError` if the arrays would take too much memory, before any is read."""
    limit, taken = array_limit(path.stat().st_size), 0
    for name in names:
        with _open_array(path, name) as (_, header):
            limit.require(taken + header.size, f"{header} and the others" if taken else f"{header}")
            taken += header.size
            if name.startswith("y"):
                LABELS_LIMIT.require(header.size, f"{header}")


def _read_split(path: Path, suffix: str, as_images: bool) -> Labelled:
    pixels, labels = (_read_array(path, f"{letter}{suffix}") for letter in "xy")
    if labels.dtype.kind not in "iuU" or labels.ndim < 1 or labels.shape[1:] not in ((), (1,)):
        raise DataError(
            f"`labels` must be whole numbers or words (N,), got {labels.dtype} {labels.shape}"
            f" in {path}: y{suffix}."
        )
    pixels = channels_first(pixels, f"{path}: x{suffix}") if as_images else pixels
    words = labels.dtype.kind == "U"
    found = labels.ravel().tolist() if words else labels.ravel().astype(np.int64)
    return Labelled(StoredImages(pixels), found)


def _read_array(path: Path, name: str) -> NDArray[Any]:
    """Read one array, whose header must agree with its length."""
    with _open_array(path, name) as (file, header):
        return _read_body(file, header)


def read_only_array(path: Path) -> NDArray[Any]:
    """Read the array of a `.npy`, or the only array of a `.npz`; refuse pickles."""
    if path.name.lower().endswith(".npz"):
        stems = [name.removesuffix(".npy") for name in ZipFiles.of(path).names]
        if len(stems) != 1:
            raise DataError(f"`data` must hold one array, got {join_names(stems)} in {path}.")
        _check_sizes(path, stems)
        return _read_array(path, stems[0])
    with reading(str(path)), open_regular(path) as file:
        header = _read_header(io.BytesIO(read_up_to(file, LONGEST_HEADER)), str(path))
        array_limit(path.stat().st_size).require(header.size, f"{header}")
        file.seek(0)
        return _read_body(file, header)


def _read_body(file: IO[bytes], header: _Header) -> NDArray[Any]:
    """Read an array from its start."""
    file.read(header.length)
    body = read_up_to(file, header.size + 1)
    if len(body) != header.size:
        found = "more" if len(body) > header.size else str(len(body))
        raise EOFError(f"{header} announced, {found} bytes found")
    flat = np.frombuffer(body, dtype=header.kind)
    array = flat.reshape(header.shape, order="F" if header.columns_first else "C")
    return array.astype(header.kind.newbyteorder("="), copy=False)


@contextmanager
def _open_array(path: Path, name: str) -> Iterator[tuple[IO[bytes], _Header]]:
    """Open a member at its start, and read its header."""
    where, member = f"{path}: member {name}.npy", f"{name}.npy"
    with reading(where), open_regular(path) as stored, zipfile.ZipFile(stored) as archive:
        if member not in archive.namelist():
            raise FileNotFoundError
        with open_member(archive, member) as file:
            header = _read_header(io.BytesIO(read_up_to(file, LONGEST_HEADER)), where)
        with open_member(archive, member) as file:  # again, because seeking would skip the checksum
            yield file, header


def _read_header(start: IO[bytes], where: str) -> _Header:
    """Read the header at the start of an array."""
    first = npy.read_magic(start) == (1, 0)
    shape, columns_first, kind = (
        npy.read_array_header_1_0(start) if first else npy.read_array_header_2_0(start)
    )
    if kind.hasobject:
        raise DataError(f"`data` must hold plain arrays, got pickled objects in {where}.")
    if any(size < 0 for size in shape):
        raise DataError(f"`data` must hold arrays with a size, got {shape} in {where}.")
    return _Header(shape, columns_first, kind, start.tell())


NPZ_FILE = DataFormat(
    title="a .npz with x and y",
    open_splits=functools.partial(open_arrays, as_images=True),
    suffixes=(".npz",),
    open_arrays=open_arrays,
)


def _open_idx(files: Files) -> SplitReaders:
    """Open grey images `(1, H, W)`, kept as 8-bit pixels; the t10k files form the split named test."""
    found: dict[str, dict[str, str]] = {}
    for name in files.names:
        match = NAME.fullmatch(name)
        if match:
            split = "test" if match[1] == "t10k" else match[1]
            found.setdefault(split, {}).setdefault(match[2], name)
    return {
        split: functools.partial(_read_idx_split, files, split, found[split]) for split in found
    }


def _read_idx_split(files: Files, split: str, names: dict[str, str]) -> Labelled:
    for content in ("images", "labels"):
        if content not in names:
            raise DataError(
                f"`data` is incomplete: no {content} of the {split} split in {files.where('')}."
            )
    images, labels = names["images"], names["labels"]
    pixels = _read_idx(files, images, 3, array_limit(files.stored_size(images)))
    return Labelled(
        StoredImages(channels_first(pixels, f"the {split} split")),
        _read_idx(files, labels, 1, LABELS_LIMIT).astype(np.int64),
    )


def _read_idx(files: Files, name: str, dimensions: int, limit: Limit) -> NDArray[np.uint8]:
    """Read the array of an idx file, whose header must agree with its length."""
    content, where = files.read(name, limit), files.where(name)
    packed = content.startswith(GZIP_MAGIC)
    possible = len(content) * (GZIP_GROWTH if packed else 1)
    with reading(where):
        stream = gzip.GzipFile(fileobj=io.BytesIO(content)) if packed else io.BytesIO(content)
        magic = stream.read(4)
        expected = bytes((0, 0, UNSIGNED_BYTE, dimensions))
        if magic != expected:
            raise DataError(f"`data` must start with {expected!r}, got {magic!r} in {where}.")
        header = stream.read(4 * dimensions)
        if len(header) != 4 * dimensions:
            raise EOFError("the header ends early")
        shape = tuple(np.frombuffer(header, dtype=">u4").tolist())
        size = math.prod(shape)
        if size <= possible:
            limit.require(size, f"{shape} uint8")
        body = read_up_to(stream, size + 1) if size <= possible else b""
        if len(body) != size:
            raise DataError(
                f"`data` announces {shape} = {size} bytes in {where}, which has fewer or more."
                " The file is incomplete or damaged: download it again."
            )
        return np.frombuffer(body, dtype=np.uint8).reshape(shape)


IDX_FILES = DataFormat(
    title="MNIST-style idx files",
    open_splits=_open_idx,
    find=lambda files: find_folders(files, lambda _, names: any(map(NAME.fullmatch, names))),
)
