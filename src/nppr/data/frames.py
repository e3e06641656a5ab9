"""One size for all images of a data set, and the only place where images are resized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from nppr.data.base import Data, Images, Part
from nppr.errors import DataError, SpecError
from nppr.types import IntArray, Split

__all__ = ["Frame", "ResizedImages", "check_resize", "resized", "to_size", "unit"]

S = TypeVar("S", bound=Split)


@dataclass(frozen=True)
class Frame:
    """What all images of a data set become, `(channels, height, width)`.

    The first image sets it; `resize` sets the size in its place, and then any size is admitted.
    """

    channels: int
    height: int
    width: int
    resize: int | None = None

    def admit(self, height: int, width: int, where: str) -> None:
        """Raise `DataError` for an image of another size, unless sizes are made equal anyway."""
        if self.resize is None and (height, width) != (self.height, self.width):
            raise DataError(
                f"`data` must hold images of one size, got {height}x{width} in {where} where the first"
                f" is {self.height}x{self.width}. Give a size for all: --resize {self.height}."
            )

    def stack(self, rows: Sequence[Tensor]) -> Tensor:
        """Images `(C, H, W)`, 8-bit or floats, as one batch of floats `(B, C, H, W)` in [0, 1]."""
        if self.resize is not None:
            return torch.cat(
                [to_size(unit(row)[None], self.resize) for row in rows]
                or [torch.zeros(0, self.channels, self.resize, self.resize)]
            )
        if not rows:
            return torch.zeros(0, self.channels, self.height, self.width)
        return unit(torch.stack(list(rows)))


@dataclass(frozen=True, eq=False)
class ResizedImages:
    """Images of another image set, resized as they are loaded."""

    images: Images
    size: int

    def __len__(self) -> int:
        return len(self.images)

    def load(self, positions: IntArray) -> Tensor:
        return to_size(self.images.load(positions).float(), self.size)

    def digest(self, position: int) -> bytes:
        return self.images.digest(position)


def resized(data: Data, size: int | None) -> Data:
    """The same data with images of `size` by `size` pixels; None leaves them as they are."""
    if size is None:
        return data
    return replace(
        data,
        fit=_resized_part(data.fit, size),
        select=_resized_part(data.select, size),
        evaluate=_resized_part(data.evaluate, size),
    )


def check_resize(size: int | None) -> None:
    """Raise `SpecError` unless the size is None or a whole number of pixels."""
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise SpecError(f"`resize` must be a whole number of pixels >= 1, got {size}. Example: 32")


def to_size(x: Tensor, size: int) -> Tensor:
    """Floats `(B, C, H, W)` to `(B, C, size, size)`: bilinear, antialiased when made smaller."""
    if x.shape[-2:] == (size, size) or not len(x):
        return x.new_zeros(0, x.shape[1], size, size) if not len(x) else x
    smooth = F.interpolate(x, (size, size), mode="bilinear", antialias=True, align_corners=False)
    return smooth.clamp(float(x.min()), float(x.max()))


def unit(x: Tensor) -> Tensor:
    """8-bit images divided by 255; floats as they are."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x.float()


def _resized_part(part: Part[S], size: int) -> Part[S]:
    return replace(part, images=ResizedImages(part.images, size))
