"""Natural corruptions: one corrupted image per input, without a budget.

The strengths are those of ImageNet-C and CIFAR-C (Hendrycks and Dietterich, 2019), severities 1 to 5.
The classifier is given the corrupted images as they are. Those data sets store them in 8 bits, and
ImageNet-C moreover as JPEG files of quality 85.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel, Metric
from nppr.errors import DataError, SpecError, unknown
from nppr.source_names import Option
from nppr.sources.base import Source

if TYPE_CHECKING:
    from torch import Tensor


AUTO = "auto"
IMAGENET_C = "imagenet-c"
CIFAR_C = "cifar-c"

SEVERITIES = 5
LARGEST_OF_CIFAR_C = 32
"""Images whose larger side has at most as many pixels get the constants of CIFAR-C."""

T = TypeVar("T")


@dataclass(frozen=True)
class Corruption(Source, ABC):
    """A corruption of a `severity` of 1 to 5.

    `constants` names the set of strengths. With "auto" it is "cifar-c" for images whose larger side
    has 32 pixels or fewer, and "imagenet-c" for all others.
    """

    metric = Metric.CORRUPTION
    has_budget = False
    budget = None
    fixed_draws = 1

    severity: int = 1
    constants: str = AUTO

    def __post_init__(self) -> None:
        whole = type(self.severity) is int  # True is an int in Python but not a severity
        if not whole or not 1 <= self.severity <= SEVERITIES:
            raise SpecError(
                f"`severity` must be a whole number from 1 to {SEVERITIES}, got {self.severity!r}."
                " Example: severity=3"
            )
        if self.constants not in (AUTO, IMAGENET_C, CIFAR_C):
            raise unknown("constants", self.constants, (AUTO, IMAGENET_C, CIFAR_C))

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The corrupted images minus the images, `(B, 1, C, H, W)`."""
        return (self.corrupt(x, draws) - x).unsqueeze(1)

    @abstractmethod
    def corrupt(self, x: Tensor, draws: DrawBlock) -> Tensor:
        """The corrupted images in [0, 1] up to rounding, `(B, C, H, W)` as `x`."""

    def constants_for(self, shape: Sequence[int]) -> str:
        """Which constants images of this shape get, `shape` ending with (H, W).

        >>> Brightness().constants_for((3, 32, 32)), Brightness().constants_for((3, 32, 33))
        ('cifar-c', 'imagenet-c')
        """
        if self.constants != AUTO:
            return self.constants
        return CIFAR_C if max(shape[-2:]) <= LARGEST_OF_CIFAR_C else IMAGENET_C

    def options(self, shape: Sequence[int]) -> dict[str, Option]:
        return {**super().options(shape), "constants": self.constants_for(shape)}

    def _strength(self, table: Mapping[str, Sequence[T]], x: Tensor) -> T:
        return table[self.constants_for(x.shape)][self.severity - 1]

    def _require_gray_or_rgb(self, x: Tensor) -> None:
        if x.shape[1] not in (1, 3):
            raise DataError(
                f"`x` must have 1 or 3 channels for source {self.kind!r}, got {x.shape[1]}."
                " Leave the source out, or give grey or RGB images."
            )


AMOUNTS = {IMAGENET_C: (0.03, 0.06, 0.09, 0.17, 0.27), CIFAR_C: (0.01, 0.02, 0.03, 0.05, 0.07)}


@dataclass(frozen=True)
class SaltAndPepper(Corruption, kind="salt-and-pepper"):
    """Some numbers of the image become 1 or 0.

    Every number of every channel by itself: with u uniform in [0, 1) it becomes 1 if u < share / 2,
    else 0 if u < share.
    """

    def corrupt(self, x: Tensor, draws: DrawBlock) -> Tensor:
        amount = self._strength(AMOUNTS, x)
        u = draws.uniform(self.kind, tuple(x.shape[1:]))[:, 0]
        return x.masked_fill(u < amount, 0.0).masked_fill_(u < amount / 2, 1.0)


BLURS = {
    IMAGENET_C: ((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
    CIFAR_C: ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
}
"""Radius r and standard deviation s, in pixels."""


@dataclass(frozen=True)
class MotionBlur(Corruption, kind="motion-blur"):
    """A blur along a line that begins at the pixel, as ImageMagick's motion blur.

    With radius r, standard deviation s and an angle a per input, uniform in [-45, 45) degrees, the
    pixel in row h and column w becomes, for i = 0..2r,

        sum of k_i x[h + ceil(i sin(a) - 1/2), w + ceil(i cos(a) - 1/2)]
        k_i proportional to exp(-i^2 / (2 s^2)), with sum 1

    where a row or column outside the image is the nearest one inside.
    """

    def corrupt(self, x: Tensor, draws: DrawBlock) -> Tensor:
        radius, sigma = self._strength(BLURS, x)
        turns = draws.uniform(self.kind, ())[:, 0].cpu().double()
        angles = torch.deg2rad((2 * turns - 1) * 45.0).unsqueeze(1)
        steps = torch.arange(2 * radius + 1, dtype=torch.float64)
        weights = torch.exp(-(steps**2) / (2 * sigma**2))
        down = torch.ceil(steps * angles.sin() - 0.5).long()  # (B, 2r + 1)
        right = torch.ceil(steps * angles.cos() - 0.5).long()
        return _along(x, down, right, (weights / weights.sum()).tolist())


def _along(x: Tensor, down: Tensor, right: Tensor, weights: list[float]) -> Tensor:
    """`sum of weights[i] x[b, :, h + down[b, i], w + right[b, i]]`, the image continued by its edge.

    The image is continued once, by as much as any offset may need; `windows[b, :, i, j]` is then the
    image moved by i rows and j columns, a view.
    """
    height, width = x.shape[-2:]
    reach = len(weights) - 1
    rows = torch.arange(-reach, height + reach, device=x.device).clamp_(0, height - 1)
    columns = torch.arange(width + reach, device=x.device).clamp_(0, width - 1)
    windows = x[:, :, rows][..., columns].unfold(2, height, 1).unfold(3, width, 1)
    each = torch.arange(len(x), device=x.device)
    down, right = (down + reach).to(x.device), right.to(x.device)
    total = torch.zeros_like(x)
    for i, weight in enumerate(weights):
        total.add_(windows[each, :, down[:, i], right[:, i]], alpha=weight)
    return total


SHIFTS = {IMAGENET_C: (0.1, 0.2, 0.3, 0.4, 0.5), CIFAR_C: (0.05, 0.1, 0.15, 0.2, 0.3)}


@dataclass(frozen=True)
class Brightness(Corruption, kind="brightness"):
    """The value V of hue, saturation and value becomes `V' = clip(V + shift)` to [0, 1].

    V is the largest channel, and for fixed hue and saturation all channels are proportional to it:
    the pixel becomes `x V' / V`, and a black one, which has no saturation, gray: V' in all channels.
    For a gray image, V is the image, which becomes `clip(x + shift)`.
    """

    def corrupt(self, x: Tensor, draws: DrawBlock) -> Tensor:
        self._require_gray_or_rgb(x)
        value = x.amax(1, keepdim=True)
        brighter = (value + self._strength(SHIFTS, x)).clamp_(0.0, 1.0)
        black = value < torch.finfo(x.dtype).tiny  # also where it is too small to divide by
        return torch.where(black, 1.0, x / value) * brighter


QUALITIES = {IMAGENET_C: (25, 18, 15, 10, 7), CIFAR_C: (80, 65, 58, 50, 40)}


@dataclass(frozen=True)
class JPEG(Corruption, kind="jpeg"):
    """The image rounded to 8 bits and compressed as a JPEG file by Pillow, gray or RGB."""

    def corrupt(self, x: Tensor, draws: DrawBlock) -> Tensor:
        self._require_gray_or_rgb(x)
        quality = self._strength(QUALITIES, x)
        levels = x.mul(255).round_().byte().movedim(1, -1).cpu().contiguous()  # (B, H, W, C)
        for image in levels.numpy():
            image[...] = _compressed(image, quality)
        return levels.to(x.device).movedim(-1, 1).to(x.dtype).div_(255)


def _compressed(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """An 8-bit image `(H, W, C)` after it was a JPEG file."""
    file = io.BytesIO()
    plain = image[..., 0] if image.shape[-1] == 1 else image
    Image.fromarray(plain).save(file, format="JPEG", quality=quality)
    with Image.open(file) as loaded:
        return np.asarray(loaded, dtype=np.uint8).reshape(image.shape)
