"""What everything that is shown is drawn with.

Draws are those of the measurement: keyed by seed, dataset index and block, whatever the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from nppr.classifiers import Prepared
from nppr.data import Data
from nppr.draws import DrawBlock
from nppr.types import IntArray

__all__ = ["Job", "small"]


@dataclass(frozen=True)
class Job:
    """What everything is drawn with."""

    classifier: Prepared
    data: Data
    seed: int
    quantise: bool

    def inputs(self, positions: IntArray) -> tuple[Tensor, Tensor]:
        """Images `(B, C, H, W)` and labels `(B,)` on the device."""
        x, y = self.data.evaluate.batch(positions)
        return x.to(self.classifier.device), y.to(self.classifier.device)

    def block(self, positions: IntArray, number: int, size: int, capacity: int) -> DrawBlock:
        """A block of the draws of these inputs, as they were measured."""
        part = self.data.evaluate
        indices = tuple(part.indices[positions].tolist())
        place = self.classifier.device
        return DrawBlock(self.seed, part.kind.name, indices, number, size, place, capacity)

    def chunks(self, positions: IntArray, draws: int) -> Iterator[IntArray]:
        """The positions in portions whose draws make a micro-batch."""
        size = max(1, self.classifier.micro_batch // draws)
        for start in range(0, len(positions), size):
            yield positions[start : start + size]


def small(images: Tensor, side: int) -> Tensor:
    """Images `(B, C, H, W)` averaged down to at most `side` pixels a side."""
    longest = max(images.shape[-2:])
    if longest <= side:
        return images
    height, width = (max(1, round(length * side / longest)) for length in images.shape[-2:])
    return F.adaptive_avg_pool2d(images, (height, width))
