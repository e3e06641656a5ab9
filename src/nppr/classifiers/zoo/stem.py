"""How a network meets its input."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Stem"]


class Stem(StrEnum):
    """`imagenet` shrinks the image fourfold before the first stage, `small` keeps its size.

    The paper uses the ImageNet stem on 32 and 64 pixel inputs too. `small` has a 3x3 convolution
    of stride 1 and no max-pool before the first stage.
    """

    IMAGENET = "imagenet"
    SMALL = "small"
