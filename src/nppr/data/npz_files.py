"""Arrays in a `.npz`: `x` and `y`, or `x_train`, `y_train`, `x_test`, `y_test`.

Images are 8-bit, or floats in [0, 1], with shape `(N, C, H, W)`, `(N, H, W, C)` or `(N, H, W)`;
with a stated range, inputs may have any shape and type of number. They stay in memory as they are
stored.
"""

from __future__ import annotations

import functools
import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nppr.data.data_formats import DataFormat, SplitReaders
from nppr.data.file_trees import Files, ZipFiles, join_names, reading
from nppr.data.image_sets import StoredImages, channels_first
from nppr.data.splits import ONLY_SPLIT, Labelled
from nppr.errors import DataError
from nppr.system.bounded import LABELS_LIMIT, array_limit, open_member, open_regular, read_up_to

LONGEST_HEADER = 1 << 14
"""Longest header in bytes. numpy reads a header of any length before it refuses a long one."""


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


def _open(files: Files) -> SplitReaders:
    """Open the splits of images in the file; pickled objects are refused."""
    return open_arrays(files, as_images=True)


def open_arrays(files: Files, *, as_images: bool = False) -> SplitReaders:
    """Open the splits in the file, with arrays as they are stored or as images."""
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
            start = io.BytesIO(read_up_to(file, LONGEST_HEADER))
        first = npy.read_magic(start) == (1, 0)
        shape, columns_first, kind = (
            npy.read_array_header_1_0(start) if first else npy.read_array_header_2_0(start)
        )
        if kind.hasobject:
            raise DataError(f"`data` must hold plain arrays, got pickled objects in {where}.")
        if any(size < 0 for size in shape):
            raise DataError(f"`data` must hold arrays with a size, got {shape} in {where}.")
        with open_member(archive, member) as file:  # again, because seeking would skip the checksum
            yield file, _Header(shape, columns_first, kind, start.tell())


NPZ_FILE = DataFormat(
    title="a .npz with x and y",
    open_splits=_open,
    suffixes=(".npz",),
    open_arrays=open_arrays,
)
