"""One measurement of a run: which source, on how many inputs, and where its blocks are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nppr.core.random_draws import DRAWS_PER_BLOCK
from nppr.core.tally import IntArray
from nppr.sources import Source

LADDER = "ladder"
"""The name under which the time of all checks of rungs is reported."""


@dataclass(frozen=True, eq=False)
class PlannedMeasurement:
    """A source to measure, the name its blocks are kept under, and on how many of the first inputs."""

    source: Source
    stored: str
    inputs: int
    draws: int
    seed: int
    is_check: bool = False
    """It checks a rung, beside the measurement of its source; its time is that of the ladder."""

    @property
    def timed_as(self) -> str:
        """The entry of the report that its time is added to."""
        return LADDER if self.is_check else self.stored

    def rows(self, part: int, parts: int) -> IntArray:
        """The positions of a part of the inputs; sources that need whole batches get whole batches."""
        size = self.source.inputs_at_once or 1
        ends = [
            min(self.inputs, round(number * self.inputs / (parts * size)) * size)
            for number in range(parts)
        ]
        return np.arange(ends[part], [*ends, self.inputs][part + 1])

    def identity(self, run: str, part: int, parts: int) -> str:
        """What distinguishes the blocks of a part from those of others."""
        return f"{run} {self.stored} shard {part + 1} of {parts}, {self.inputs} inputs"

    @property
    def blocks(self) -> int:
        """Blocks of draws of each input."""
        return -(-self.draws // min(DRAWS_PER_BLOCK, self.source.fixed_draws or DRAWS_PER_BLOCK))
