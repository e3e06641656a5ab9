"""MNIST-style idx files: a short header with the shape, then bytes; compressed with gzip or not.

    train-images-idx3-ubyte  train-labels-idx1-ubyte  t10k-images-idx3-ubyte  t10k-labels-idx1-ubyte

Reference: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits, 1998.
"""

from __future__ import annotations

import gzip
import io
import math
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nppr.data.base import Data
from nppr.data.files import Files
from nppr.data.guard import reading
from nppr.data.parts import Labelled, assemble, choose_parts
from nppr.data.pixels import PixelImages, channels_first
from nppr.errors import DataError

__all__ = ["is_idx", "load_idx"]

NAME = re.compile(r"(train|t10k|test|val|validation)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")
GZIP_MAGIC = b"\x1f\x8b"
GZIP_GROWTH = 1032
"""What gzip can make of one byte at most: a header that announces more is damaged."""

UNSIGNED_BYTE = 8


def is_idx(name: str) -> bool:
    """Whether a file is one of the four, by its name.

    >>> is_idx("t10k-images.idx3-ubyte.gz")
    True
    """
    return NAME.fullmatch(name) is not None


def load_idx(files: Files, name: str, split: str | None) -> Data:
    """Grey images `(1, H, W)`, kept as 8-bit pixels; the t10k files are the part named test."""
    found = _listing(files.names)
    plan = choose_parts({part for part, _ in found}, split)
    parts = {
        own: Labelled(
            PixelImages(channels_first(_read(files, found, own, "images"), f"the {own} part")),
            _read(files, found, own, "labels").astype(np.int64),
        )
        for own in plan.names
    }
    return assemble(name, plan, parts)


def _listing(names: Iterable[str]) -> dict[tuple[str, str], str]:
    """Which file holds the images and which the labels of each part."""
    found: dict[tuple[str, str], str] = {}
    for name in names:
        match = NAME.fullmatch(name)
        if match:
            part = "test" if match[1] == "t10k" else match[1]
            found.setdefault((part, match[2]), name)
    return found


def _read(
    files: Files, found: dict[tuple[str, str], str], part: str, what: str
) -> NDArray[np.uint8]:
    if (part, what) not in found:
        raise DataError(f"`data` is incomplete: no {what} of the {part} part in {files.where('')}.")
    name = found[part, what]
    return _parse(files.read(name), 3 if what == "images" else 1, files.where(name))


def _parse(content: bytes, dimensions: int, where: str) -> NDArray[np.uint8]:
    """The array of an idx file, once its header agrees with its length."""
    packed = content.startswith(GZIP_MAGIC)
    limit = len(content) * (GZIP_GROWTH if packed else 1)
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
        body = stream.read(size + 1) if size <= limit else b""
        if len(body) != size:
            raise DataError(
                f"`data` announces {shape} = {size} bytes in {where}, which has fewer or more."
                " The file is incomplete or damaged: fetch it again."
            )
        return np.frombuffer(body, dtype=np.uint8).reshape(shape)
