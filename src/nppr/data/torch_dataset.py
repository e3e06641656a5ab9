"""Data from PyTorch's own `Dataset` and `DataLoader` objects."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from nppr.data.base import Data, Images, content_hash
from nppr.data.encoded import GREY, pixels_of
from nppr.data.frames import Frame
from nppr.data.guard import reading
from nppr.data.parts import Labelled, Plan, assemble
from nppr.data.pixels import PixelImages, channels_first
from nppr.errors import DataError, SpecError
from nppr.types import IntArray

__all__ = ["DatasetImages", "from_dataset"]

ONLY_PART = "all"
REPEATED = 8
"""How many images are read twice, to notice random augmentation."""


@dataclass(frozen=True, eq=False)
class DatasetImages:
    """Images of a map-style data set, asked for as they are needed."""

    dataset: Dataset[Any]
    frame: Frame
    items: int

    def __len__(self) -> int:
        return self.items

    def load(self, positions: IntArray) -> Tensor:
        rows = [self.row(position) for position in positions.tolist()]
        return self.frame.stack(rows)

    def digest(self, position: int) -> bytes:
        return content_hash(self.row(position).contiguous().numpy().tobytes())

    def row(self, position: int) -> Tensor:
        image, _ = _item(self.dataset, position)
        return _row(image, self.frame, f"item {position}")


def from_dataset(
    source: Dataset[Any] | DataLoader[Any], resize: int | None = None, split: str | None = None
) -> Data:
    """Pairs (image, label); a loader's data set is read in its own order, without its batches.

    Images are tensors `(C, H, W)` or arrays, 8-bit or floats in [0, 1], or pillow images. A data set
    that can only be iterated is kept in memory, in the type its images have.
    """
    if split is not None:
        raise SpecError(
            f"`split` must not be given for a Dataset, which is one part, got {split!r}."
        )
    dataset = source.dataset if isinstance(source, DataLoader) else source
    streamed = isinstance(dataset, IterableDataset)
    images, labels = _materialised(dataset, resize) if streamed else _mapped(dataset, resize)
    part = Labelled(images, np.array(labels, dtype=np.int64))
    return assemble(type(dataset).__name__, Plan(ONLY_PART), {ONLY_PART: part}, _classes(dataset))


def _mapped(dataset: Dataset[Any], resize: int | None) -> tuple[Images, list[int]]:
    """All labels, which takes one pass over the images; the images are not kept."""
    with reading("the Dataset's length", "Give a map-style Dataset or an IterableDataset."):
        items = len(dataset)  # type: ignore[arg-type]
    frame, labels = None, []
    for position in range(items):
        image, label = _item(dataset, position)
        frame = frame or _frame(image, resize)
        row = _row(image, frame, f"item {position}")
        labels.append(label)
        if position < REPEATED:
            again = _row(_item(dataset, position)[0], frame, f"item {position}")
            _check_same(row, again, position)
    if frame is None:
        raise DataError("`data` must hold at least one input, got an empty Dataset.")
    return DatasetImages(dataset, frame, items), labels


def _materialised(dataset: Dataset[Any], resize: int | None) -> tuple[Images, list[int]]:
    """All images in memory, 8-bit where they come so and are not resized."""
    frame, rows, labels = None, [], []
    for position, (image, label) in enumerate(_stream(dataset)):
        frame = frame or _frame(image, resize)
        row = _row(image, frame, f"item {position}")
        rows.append(row if resize is None else frame.stack([row])[0])
        labels.append(label)
    if not rows:
        raise DataError("`data` must hold at least one input, got an empty Dataset.")
    return PixelImages(torch.stack(rows).numpy()), labels


def _stream(dataset: Dataset[Any]) -> Iterator[tuple[Any, int]]:
    iterator = iter(dataset)
    position = 0
    while True:
        with reading(f"item {position} of the Dataset", ""):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield _pair(item, position)
        position += 1


def _item(dataset: Dataset[Any], position: int) -> tuple[Any, int]:
    with reading(f"item {position} of the Dataset", ""):
        item = dataset[position]
    return _pair(item, position)


def _pair(item: Any, position: int) -> tuple[Any, int]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(
            f"`data` must give pairs (image, label), got {type(item).__name__} in item {position}."
        )
    try:
        return item[0], operator.index(item[1])
    except TypeError as error:
        raise DataError(
            f"`labels` must be whole numbers, got {item[1]!r} in item {position}."
        ) from error


def _frame(image: Any, resize: int | None) -> Frame:
    channels = 1 if isinstance(image, Image.Image) and image.mode in GREY else 3
    channels, height, width = _pixels(image, channels, "item 0").shape
    return Frame(channels, height, width, resize)


def _row(image: Any, frame: Frame, where: str) -> Tensor:
    """One image `(C, H, W)`, 8-bit or floats, that fits the frame."""
    row = _pixels(image, frame.channels, where)
    if row.shape[0] != frame.channels:
        raise DataError(
            f"`images` must all have {frame.channels} channels, got {row.shape[0]} in {where}."
        )
    frame.admit(row.shape[1], row.shape[2], where)
    return row


def _pixels(image: Any, channels: int, where: str) -> Tensor:
    if isinstance(image, Image.Image):
        with reading(where):
            return pixels_of(image, channels)
    if isinstance(image, Tensor):
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray):
        raise DataError(
            "`images` must be tensors, arrays or pillow images,"
            f" got {type(image).__name__} in {where}."
        )
    return torch.from_numpy(np.ascontiguousarray(channels_first(image[None], where)[0]))


def _check_same(first: Tensor, again: Tensor, position: int) -> None:
    if first.dtype != again.dtype or not torch.equal(first.nan_to_num(), again.nan_to_num()):
        raise DataError(
            f"`data` must give the same image every time, got another one for item {position}."
            " Leave random augmentation out."
        )


def _classes(dataset: object) -> tuple[str, ...] | None:
    names = getattr(dataset, "classes", None)
    return tuple(str(name) for name in names) if isinstance(names, list | tuple) else None
