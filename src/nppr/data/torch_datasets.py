"""Data from `Dataset` and `DataLoader` objects of PyTorch."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from nppr.core.tally import IntArray
from nppr.data.data_set import Data, Images, content_hash
from nppr.data.file_trees import reading
from nppr.data.image_sets import GREY, Frame, StoredImages, channels_first, decode
from nppr.data.splits import ONLY_SPLIT, Labelled, assemble
from nppr.errors import DataError
from nppr.system.user_code import contain_exits

REPEATED = 8
"""Number of images that are read twice, to detect random augmentation."""


@dataclass(frozen=True, eq=False)
class DatasetImages:
    """Images of a map-style data set, requested when they are needed."""

    dataset: Dataset[Any]
    frame: Frame
    items: int

    def __len__(self) -> int:
        return self.items

    def load(self, positions: IntArray) -> Tensor:
        return self.frame.stack(self.row(position) for position in positions.tolist())

    def digest(self, position: int) -> bytes:
        return content_hash(self.row(position).contiguous().numpy().tobytes())

    def row(self, position: int) -> Tensor:
        """Return one image `(C, H, W)`, 8-bit or floats."""
        return _fit_frame(_item(self.dataset, position)[0], self.frame, position)


def from_dataset(source: Dataset[Any] | DataLoader[Any], resize: int | None = None) -> Data:
    """Read pairs (image, label); a loader's data set is read in its order, without batches.

    Images are tensors `(C, H, W)` or arrays, 8-bit or floats in [0, 1], or pillow images. One pass
    reads the labels of a map-style data set; its images are not kept. A data set that can only be
    iterated is kept in memory, in 8 bits if its images are 8-bit and not resized.
    """
    dataset = source.dataset if isinstance(source, DataLoader) else source
    streamed = isinstance(dataset, IterableDataset)
    frame: Frame | None = None
    rows, labels = [], []
    for position, (image, label) in enumerate(_pairs(dataset)):
        frame = frame or _first_frame(image, resize)
        row = _fit_frame(image, frame, position)
        labels.append(label)
        if streamed:
            rows.append(row if resize is None else frame.stack([row])[0])
        elif position < REPEATED:
            again = _fit_frame(_item(dataset, position)[0], frame, position)
            if row.dtype != again.dtype or not torch.equal(row.nan_to_num(), again.nan_to_num()):
                raise DataError(
                    "`data` must give the same image every time, got another one for item"
                    f" {position}. Leave random augmentation out."
                )
    if frame is None:
        raise DataError("`data` must hold at least one input, got an empty Dataset.")
    images: Images = DatasetImages(dataset, frame, len(labels))
    if streamed:
        images = StoredImages(torch.stack(rows).numpy())
    names = getattr(dataset, "classes", None)
    class_names = tuple(map(str, names)) if isinstance(names, list | tuple) else None
    split = Labelled(images, np.array(labels, dtype=np.int64), class_names)
    return assemble(type(dataset).__name__, {ONLY_SPLIT: split})


def _pairs(dataset: Dataset[Any]) -> Iterator[tuple[Any, int]]:
    if not isinstance(dataset, IterableDataset):
        with (
            reading("the Dataset's length", "Give a map-style Dataset or an IterableDataset."),
            contain_exits(),
        ):
            items = len(dataset)  # type: ignore[arg-type]
        yield from (_item(dataset, position) for position in range(items))
        return
    end, iterator = object(), iter(dataset)
    for position in itertools.count():
        with reading(f"item {position} of the Dataset", ""), contain_exits():
            item = next(iterator, end)
        if item is end:
            return
        yield _check_pair(item, position)


def _item(dataset: Dataset[Any], position: int) -> tuple[Any, int]:
    with reading(f"item {position} of the Dataset", ""), contain_exits():
        item = dataset[position]
    return _check_pair(item, position)


def _check_pair(item: Any, position: int) -> tuple[Any, int]:
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


def _first_frame(image: Any, resize: int | None) -> Frame:
    channels = 1 if isinstance(image, Image.Image) and image.mode in GREY else 3
    channels, height, width = _to_pixels(image, channels, "item 0").shape
    return Frame(channels, height, width, resize)


def _fit_frame(image: Any, frame: Frame, position: int) -> Tensor:
    """Return one image `(C, H, W)`, 8-bit or floats, and check that it fits the frame."""
    where = f"item {position}"
    row = _to_pixels(image, frame.channels, where)
    channels, height, width = row.shape
    if channels != frame.channels:
        raise DataError(
            f"`images` must all have {frame.channels} channels, got {channels} in {where}."
        )
    frame.check_size(height, width, where)
    return row


def _to_pixels(image: Any, channels: int, where: str) -> Tensor:
    if isinstance(image, Image.Image):
        with reading(where):
            return decode(image, channels)
    if isinstance(image, Tensor):
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray):
        raise DataError(
            "`images` must be tensors, arrays or pillow images,"
            f" got {type(image).__name__} in {where}."
        )
    return torch.from_numpy(np.ascontiguousarray(channels_first(image[None], where)[0]))
