"""Inputs of any shape and range; the rest of the program sees them as images in [0, 1].

    image   (C, H, W)   unchanged
    signal  (C, L)      -> (C, 1, L)
    table   (F,)        -> (F, 1, 1)
    others  (A, ..., Z) -> (A, product of the sizes between, Z)

A budget is stated as a share of the range: a radius of 0.1 is 0.2 for values in [-1, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nppr.errors import DataError, SpecError

RangeSpec = str | tuple[ArrayLike | Tensor, ArrayLike | Tensor]
"""A text, or the lower and the upper ends, each one number or one per feature."""


@dataclass(frozen=True)
class Layout:
    """The shape of an input for the model, and its range: one, or one per feature.

    >>> Layout((30,), (0.0,), (1.0,)).inner, Layout((2, 500), (-1.0,), (1.0,)).inner
    ((30, 1, 1), (2, 1, 500))
    """

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for each in (self.low, self.high):
            if len(each) not in (1, *self.shape[:1]):
                raise SpecError(
                    f"`range` must be one, or one for each of {self.shape[0]} features,"
                    f" got {len(each)}."
                )

    @property
    def kind(self) -> str:
        """The word for an input, which decides how it is drawn: image, signal, table or tensor."""
        return {0: "table", 1: "table", 2: "signal", 3: "image"}.get(len(self.shape), "tensor")

    @property
    def inner(self) -> tuple[int, int, int]:
        """Its shape as an image."""
        if len(self.shape) < 2:
            return (math.prod(self.shape), 1, 1)
        return (self.shape[0], math.prod(self.shape[1:-1]), self.shape[-1])

    @property
    def text(self) -> str:
        """The range for readers."""
        if len(self.low) == len(self.high) == 1:
            return f"[{self.low[0]:g}, {self.high[0]:g}]"
        return "of each feature"

    def to_unit(self, x: Tensor) -> Tensor:
        """Convert inputs `(B, *shape)` to images `(B, C, H, W)` in [0, 1]."""
        low, high = self._ends(x.double())
        return ((x.double() - low) / (high - low)).float().reshape(len(x), *self.inner)

    def from_unit(self, x: Tensor) -> Tensor:
        """Convert images `(B, C, H, W)` in [0, 1] to inputs `(B, *shape)`."""
        x = x.reshape(len(x), *self.shape)
        low, high = self._ends(x)
        return low + x * (high - low)

    def check(self, array: NDArray[Any], where: str) -> None:
        """Raise `DataError` unless all inputs `(N, *shape)` are finite and in the range."""
        if not len(array):
            return
        others = (0, *range(2, array.ndim))
        least, most = (np.asarray(end(axis=others), float) for end in (array.min, array.max))
        if not (np.isfinite(least).all() and np.isfinite(most).all()):
            raise DataError(f"`data` must be finite, got NaN or infinite numbers in {where}.")
        low, high = (np.broadcast_to(ends, least.shape) for ends in (self.low, self.high))
        room = 1e-6 * (high - low)
        outside = np.flatnonzero((least < low - room) | (most > high + room))
        if len(outside):
            first = int(outside[0])
            raise DataError(
                f"`range` must cover the data, but feature {first} has values from"
                f" {least[first]:.6g} to {most[first]:.6g} in {where}, outside"
                f" [{low[first]:g}, {high[first]:g}]. Give a wider range."
            )

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends of the range in a shape that broadcasts to inputs `(B, *shape)`."""
        each = (1, -1, *[1] * max(0, x.ndim - 2)) if self.shape else (1,)
        low, high = (
            torch.tensor(ends, dtype=x.dtype, device=x.device).view(each)
            for ends in (self.low, self.high)
        )
        return low, high


def parse_range(given: RangeSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Parse lower and upper ends: `-1,1`, one pair per feature separated by `;`, or two sequences.

    >>> parse_range("-1,1"), parse_range("0,1;0,10")
    (((-1.0,), (1.0,)), ((0.0, 0.0), (1.0, 10.0)))
    """
    try:
        if isinstance(given, str):
            pairs = [tuple(map(float, pair.split(","))) for pair in given.split(";")]
            lows, highs = zip(*((low, high) for low, high in pairs), strict=True)
        else:
            ends = (np.atleast_1d(np.asarray(end, dtype=float)) for end in given)
            lows, highs = (tuple(map(float, end)) for end in ends)
    except (TypeError, ValueError):
        raise _bad_range(given) from None
    if not lows or not highs or (len(lows) != len(highs) and 1 not in (len(lows), len(highs))):
        raise _bad_range(given)
    for feature, (low, high) in enumerate(zip(*np.broadcast_arrays(lows, highs), strict=True)):
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            which = f" for feature {feature}" if max(len(lows), len(highs)) > 1 else ""
            raise _bad_range(f"{low:g},{high:g}", which)
    return lows, highs


def _bad_range(given: object, which: str = "") -> SpecError:
    return SpecError(
        f"`range` must be a lower and a higher number, got {str(given)[:80]!r}{which}. Example:"
        " --range -1,1, or one pair per feature: --range '0,1;-5,5'"
    )
