"""MNIST-style idx files: a short header with the shape, then bytes; compressed with gzip or not.

    train-images-idx3-ubyte  train-labels-idx1-ubyte  t10k-images-idx3-ubyte  t10k-labels-idx1-ubyte

Reference: Y. LeCun, C. Cortes and C. Burges, The MNIST database of handwritten digits, 1998.
"""

from __future__ import annotations

import functools
import gzip
import io
import math
import re

import numpy as np
from numpy.typing import NDArray

from nppr.data.data_formats import DataFormat, SplitReaders, find_folders
from nppr.data.file_trees import GZIP_MAGIC, Files, reading
from nppr.data.image_sets import StoredImages, channels_first
from nppr.data.splits import Labelled
from nppr.errors import DataError
from nppr.system.bounded import LABELS_LIMIT, Limit, array_limit, read_up_to

NAME = re.compile(r"(train|t10k|test|val|validation)-(images|labels)[-.]idx[13]-ubyte(\.gz)?")
GZIP_GROWTH = 1032
"""Most bytes that gzip can make of one byte; a header that announces more is damaged."""

UNSIGNED_BYTE = 8


def _open(files: Files) -> SplitReaders:
    """Open grey images `(1, H, W)`, kept as 8-bit pixels; the t10k files form the split named test."""
    found: dict[str, dict[str, str]] = {}
    for name in files.names:
        match = NAME.fullmatch(name)
        if match:
            split = "test" if match[1] == "t10k" else match[1]
            found.setdefault(split, {}).setdefault(match[2], name)
    return {split: functools.partial(_read_split, files, split, found[split]) for split in found}


def _read_split(files: Files, split: str, names: dict[str, str]) -> Labelled:
    for content in ("images", "labels"):
        if content not in names:
            raise DataError(
                f"`data` is incomplete: no {content} of the {split} split in {files.where('')}."
            )
    images, labels = names["images"], names["labels"]
    pixels = _read_array(files, images, 3, array_limit(files.stored_size(images)))
    return Labelled(
        StoredImages(channels_first(pixels, f"the {split} split")),
        _read_array(files, labels, 1, LABELS_LIMIT).astype(np.int64),
    )


def _read_array(files: Files, name: str, dimensions: int, limit: Limit) -> NDArray[np.uint8]:
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
    open_splits=_open,
    find=lambda files: find_folders(files, lambda _, names: any(map(NAME.fullmatch, names))),
)
