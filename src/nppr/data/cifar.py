"""CIFAR-10 and CIFAR-100 in the layout of their python versions.

Reference: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nppr.data.base import Data
from nppr.data.files import Files
from nppr.data.guard import shown
from nppr.data.parts import Labelled, assemble, choose_parts
from nppr.data.pixels import PixelImages
from nppr.data.unpickle import read_pickle, text
from nppr.errors import DataError
from nppr.types import IntArray

__all__ = ["CIFAR_10", "CIFAR_100", "MEMBERS", "Cifar", "load_cifar"]

SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Cifar:
    """Which files hold what in one of the two data sets."""

    meta: str
    class_names: str
    labels: str
    parts: Mapping[str, tuple[str, ...]]


CIFAR_10 = Cifar(
    meta="batches.meta",
    class_names="label_names",
    labels="labels",
    parts={
        "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test": ("test_batch",),
    },
)
CIFAR_100 = Cifar(
    meta="meta",
    class_names="fine_label_names",
    labels="fine_labels",
    parts={"train": ("train",), "test": ("test",)},
)
MEMBERS = frozenset(
    member
    for layout in (CIFAR_10, CIFAR_100)
    for member in (layout.meta, *(file for files in layout.parts.values() for file in files))
)
"""Names of all files of both data sets."""


def load_cifar(files: Files, layout: Cifar, name: str, split: str | None) -> Data:
    """Images `(3, 32, 32)`, kept as 8-bit pixels; CIFAR-100 with its 100 fine labels."""
    plan = choose_parts(layout.parts, split)
    meta = read_pickle(files.read(layout.meta), files.where(layout.meta))
    classes = _field(meta, layout.class_names, list, files.where(layout.meta))
    parts = {own: _part(files, layout, layout.parts[own]) for own in plan.names}
    return assemble(name, plan, parts, tuple(text(each) for each in classes))


def _part(files: Files, layout: Cifar, members: tuple[str, ...]) -> Labelled:
    batches = [_batch(files, member, layout.labels) for member in members]
    pixels = np.concatenate([batch[0] for batch in batches])
    return Labelled(PixelImages(pixels), np.concatenate([batch[1] for batch in batches]))


def _batch(files: Files, member: str, key: str) -> tuple[NDArray[np.uint8], IntArray]:
    """Pixels `(N, 3, 32, 32)` and labels `(N,)` of one file."""
    where = files.where(member)
    batch = read_pickle(files.read(member), where)
    pixels = _field(batch, "data", np.ndarray, where)
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != np.prod(SHAPE):
        raise DataError(
            f"`data` must have 8-bit rows of 3072, got {pixels.dtype} {pixels.shape} in {where}."
        )
    labels = _labels(_field(batch, key, list | np.ndarray, where), where)
    if len(labels) != len(pixels):
        raise DataError(
            f"`data` must have a label for every image, got {len(pixels)} images and"
            f" {len(labels)} labels in {where}."
        )
    return pixels.reshape(-1, *SHAPE), labels


def _labels(values: list[Any] | NDArray[Any], where: str) -> IntArray:
    numbers = values.ravel().tolist() if isinstance(values, np.ndarray) else values
    if not all(type(number) is int and abs(number) < 2**31 for number in numbers):
        raise DataError(f"`labels` must be whole numbers, got something else in {where}.")
    return np.array(numbers, dtype=np.int64)


def _field(found: dict[str, Any], key: str, kind: Any, where: str) -> Any:
    if not isinstance(found.get(key), kind):
        raise DataError(
            f"`data` must have {key!r} in {where}, got {shown(sorted(found)) or 'nothing'}."
        )
    return found[key]
