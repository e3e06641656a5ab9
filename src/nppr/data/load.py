"""From what the caller gives to a `Data` object."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nppr.data.base import Data
from nppr.data.frames import check_resize, resized
from nppr.data.memory import from_arrays
from nppr.errors import DataError, SpecError, unknown

__all__ = ["DATA", "DataSpec", "load_data"]

DataSpec = (
    str
    | Path
    | Data
    | tuple[Tensor | ArrayLike, Tensor | ArrayLike]
    | Dataset[Any]
    | DataLoader[Any]
)

DATA = ("digits",)
"""Names of the data sets that need no download."""

HUB = "hf:"


def load_data(spec: DataSpec, *, split: str | None = None, resize: int | None = None) -> Data:
    """A name, a file or folder, `hf:NAME`, an `(images, labels)` pair, a Dataset or a `Data` object.

    `split` names the part of the data set to evaluate, where it has parts; `resize` makes all images
    that many pixels high and wide.

    >>> load_data("digits").classes
    10
    >>> load_data("digits", resize=16).evaluate.batch(np.arange(2))[0].shape
    torch.Size([2, 1, 16, 16])
    """
    check_resize(resize)
    loaded = _load(spec, split, resize)
    if split is None and resize is None:
        return loaded
    return replace(loaded, split=split, resize=resize)


def _load(spec: DataSpec, split: str | None, resize: int | None) -> Data:
    match spec:
        case "digits":
            from nppr.data.digits import digits  # scikit-learn is slow to import

            return _one_part(digits(), split, resize)
        case str() | Path():
            return _alike(_stored(spec, split, resize))
        case Data():
            return _one_part(spec, split, resize)
        case Dataset() | DataLoader():
            from nppr.data.torch_dataset import from_dataset

            return from_dataset(spec, resize, split)
        case (images, labels):
            return _one_part(from_arrays(images, labels), split, resize)
        case _:
            raise DataError(
                "`data` must be a name, a path, a pair (images, labels), a Dataset, a DataLoader or a"
                f" Data object, got {type(spec).__name__}."
            )


def _stored(spec: str | Path, split: str | None, resize: int | None) -> Data:
    """Data of the hub, or of a file or folder."""
    if isinstance(spec, str) and spec.startswith(HUB):
        from nppr.data.hf import load_hf

        return load_hf(spec.removeprefix(HUB), split, resize)
    path = Path(os.path.expanduser(spec))  # of pathlib's own, some raise for names that cannot be
    if not str(spec) or not os.path.exists(path):
        raise SpecError(
            f"{unknown('data', str(spec), DATA)} No file or folder of that name was found."
        )
    from nppr.data.paths import load_path

    return load_path(path.absolute() if path.name == "" else path, split, resize)


def _one_part(data: Data, split: str | None, resize: int | None) -> Data:
    """Data whose parts are fixed already."""
    if split is not None:
        raise SpecError(
            f"`split` must not be given for {data.name!r}, whose parts are fixed, got {split!r}."
        )
    return resized(data, resize)


def _alike(data: Data) -> Data:
    """The data, once the first images of all parts have one shape."""
    probed = {
        part.kind.name: tuple(part.batch(np.arange(1))[0].shape[1:])
        for part in (data.fit, data.select, data.evaluate)
        if len(part)
    }
    if len(set(probed.values())) > 1:
        shapes = ", ".join(f"{shape} in {part}" for part, shape in probed.items())
        raise DataError(
            f"`data` must hold images of one shape, got {shapes}. Give a size for all: --resize 32."
        )
    return data
