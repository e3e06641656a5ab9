"""What is measured, and how it is cut into pieces."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from torch import Tensor

from nppr.checkpoint import Blocks
from nppr.classifiers import Prepared
from nppr.data import PROBE_INPUTS, Part
from nppr.draws import DRAWS_PER_BLOCK, DrawBlock
from nppr.types import Grouping, IntArray, PerturbationSource, Progress, Split

__all__ = ["Job", "ProgressCallback", "probe"]

NUMBERS_AT_ONCE = 2**20
"""Numbers in the perturbed images that are made together, unless a micro-batch has more."""

S = TypeVar("S", bound=Split)
ProgressCallback = Callable[[Progress], None]


def probe(part: Part[S]) -> Tensor:
    """The first inputs of a part, for checking and timing a classifier."""
    x, _ = part.batch(np.arange(min(PROBE_INPUTS, len(part))))
    return x


@dataclass(frozen=True)
class Job:
    """What is measured; `capacity` draws make a block."""

    source: PerturbationSource
    classifier: Prepared
    part: Part[Split]
    pixels: int
    draws: int
    seed: int
    quantise: bool
    keep: dict[int, Tensor] | None = None

    @property
    def capacity(self) -> int:
        return min(DRAWS_PER_BLOCK, self.source.fixed_draws or DRAWS_PER_BLOCK)

    @property
    def blocks(self) -> int:
        return -(-self.draws // self.capacity)

    @property
    def inputs_at_once(self) -> int:
        """Inputs whose draws are made together: a micro-batch, or more where images are small.

        The classifier meets micro-batches all the same; what is around it then costs little. A source
        that calls the classifier itself gets a micro-batch.
        """
        if isinstance(self.source, Grouping):
            return self.source.inputs_at_once
        images, draws = self.classifier.micro_batch, min(self.capacity, self.draws)
        if self.source.cost <= 1:
            images = max(images, NUMBERS_AT_ONCE // self.pixels)
        return max(1, images // draws // self._filling * self._filling or images // draws)

    @property
    def inputs_together(self) -> int:
        """Inputs that stay on one rank: the classifier meets the same micro-batches on any number."""
        divisible = self.source.cost <= 1 and not isinstance(self.source, Grouping)
        return self._filling if divisible else self.inputs_at_once

    @property
    def _filling(self) -> int:
        """How many inputs fill micro-batches."""
        micro_batch = self.classifier.micro_batch
        return micro_batch // math.gcd(micro_batch, min(self.capacity, self.draws))

    def draws_done(self, blocks: Blocks) -> IntArray:
        """Draws of every input that are measured."""
        return np.minimum(blocks.finished * self.capacity, self.draws)

    def draw_block(self, positions: IntArray, block: int) -> DrawBlock:
        return DrawBlock(
            seed=self.seed,
            split=self.part.kind.name,
            indices=tuple(self.part.indices[positions].tolist()),
            block=block,
            size=min(self.capacity, self.draws - block * self.capacity),
            device=self.classifier.device,
            capacity=self.capacity,
        )
