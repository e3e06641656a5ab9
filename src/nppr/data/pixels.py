"""Images that are stored as an array of pixels, made floats a batch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nppr.data.base import content_hash
from nppr.data.frames import unit
from nppr.errors import DataError
from nppr.types import IntArray

__all__ = ["PixelImages", "channels_first"]


@dataclass(frozen=True, eq=False)
class PixelImages:
    """Pixels as they are stored, `(N, C, H, W)`: 8-bit, or floats in [0, 1]."""

    pixels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.pixels)

    def load(self, positions: IntArray) -> Tensor:
        return unit(torch.from_numpy(np.ascontiguousarray(self.pixels[positions])))

    def digest(self, position: int) -> bytes:
        return content_hash(self.pixels[position].tobytes())


def channels_first(pixels: NDArray[Any], where: str) -> NDArray[Any]:
    """`(N, C, H, W)`, `(N, H, W, C)` or `(N, H, W)` as a view `(N, C, H, W)`.

    Channels are fewer than rows and columns, so the smaller of the second and the last axis is theirs.
    """
    if pixels.dtype != np.uint8 and pixels.dtype.kind != "f":
        raise DataError(
            f"`images` must be 8-bit (uint8) or floats in [0, 1], got {pixels.dtype} in {where}."
        )
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim != 4 or 0 in pixels.shape[1:]:
        raise DataError(
            "`images` must have shape (N, C, H, W), (N, H, W, C) or (N, H, W),"
            f" got {pixels.shape} in {where}."
        )
    return np.moveaxis(pixels, -1, 1) if pixels.shape[3] < pixels.shape[1] else pixels
