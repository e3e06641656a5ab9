"""Arrays in a `.npz`: `x` and `y`, or `x_train`, `y_train`, `x_test`, `y_test`.

Images are 8-bit, or floats in [0, 1], `(N, C, H, W)`, `(N, H, W, C)` or `(N, H, W)`; they stay in
memory as they are stored.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from nppr.data.base import Data
from nppr.data.files import ZipFiles
from nppr.data.guard import reading, shown
from nppr.data.parts import Labelled, assemble, choose_parts
from nppr.data.pixels import PixelImages, channels_first
from nppr.errors import DataError
from nppr.types import IntArray

__all__ = ["load_npz"]

ONLY_PART = "all"


def load_npz(path: Path, split: str | None) -> Data:
    """Whatever parts the file has; pickled objects in it are refused."""
    members = ZipFiles.of(path).names
    found = {_part_of(member) for member in members if member[:1] == "x"} - {None}
    if not found:
        raise DataError(
            "`data` must have arrays x and y, or x_train, y_train, x_test and y_test,"
            f" got {shown(member.removesuffix('.npy') for member in members)} in {path}."
        )
    plan = choose_parts((part for part in found if part is not None), split)
    parts = {own: _read_part(path, own) for own in plan.names}
    return assemble(path.name, plan, parts)


def _part_of(member: str) -> str | None:
    """The part that an array of images belongs to: x to all of it, x_train to train."""
    stem = member.removesuffix(".npy")
    return ONLY_PART if stem == "x" else stem[2:] if stem[:2] == "x_" else None


def _read_part(path: Path, part: str) -> Labelled:
    suffix = "" if part == ONLY_PART else f"_{part}"
    pixels = channels_first(_read(path, f"x{suffix}"), f"{path}: x{suffix}")
    return Labelled(PixelImages(pixels), _labels(_read(path, f"y{suffix}"), f"{path}: y{suffix}"))


def _read(path: Path, name: str) -> NDArray[Any]:
    """One array, whose header must agree with its length before memory is taken for it."""
    where = f"{path}: member {name}.npy"
    with reading(where), zipfile.ZipFile(path) as archive:
        if f"{name}.npy" not in archive.namelist():
            raise FileNotFoundError
        with archive.open(f"{name}.npy") as file:
            version = npy.read_magic(file)
            header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, columns_first, kind = header(file)
            if kind.hasobject:
                raise DataError(f"`data` must hold plain arrays, got pickled objects in {where}.")
            body = file.read()
        if len(body) != math.prod(shape) * kind.itemsize:
            raise EOFError(f"{shape} {kind} announced, {len(body)} bytes found")
        array = np.frombuffer(body, dtype=kind).reshape(shape, order="F" if columns_first else "C")
        return array.astype(kind.newbyteorder("="), copy=False)


def _labels(values: NDArray[Any], where: str) -> IntArray:
    if (
        values.dtype.kind not in "iu"
        or values.ndim not in (1, 2)
        or values.shape[1:] not in ((), (1,))
    ):
        raise DataError(
            f"`labels` must be whole numbers (N,), got {values.dtype} {values.shape} in {where}."
        )
    return values.ravel().astype(np.int64)
