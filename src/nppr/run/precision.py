"""How many inputs and draws a wanted precision takes, found while measuring.

The mean over n inputs of m draws each has the variance `(b + w / m) / n`, with b the variance of the
inputs' own probabilities and w the mean variance of a draw. Both are estimated from what was
measured. At the same number of calls n m more inputs are better than more draws, whatever b and w
are, so inputs come first; when they run out, `m = w / (n v - b)` draws reach the wanted variance v, if
`n v > b`. Otherwise no number of draws does, and more inputs are the only way.

Stopping at a width that was estimated on the way keeps the coverage of the normal interval for small
widths (Chow and Robbins, 1965). One right and one wrong input are added to the variance, so that a
mean of 0 or 1 does not look exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from nppr.checkpoint import Blocks, Store
from nppr.draws import DRAWS_PER_BLOCK
from nppr.types import Evaluate, IntArray, Tally

__all__ = [
    "FIRST",
    "GrowingStore",
    "MemoryStore",
    "Need",
    "Round",
    "Width",
    "judge",
    "whole_blocks",
]

AHEAD = 1.05
"""Inputs are taken for a variance that is so much larger than the estimate."""

MOST_DRAWS = 10_000


@dataclass(frozen=True)
class Round:
    """Inputs and draws of each; draws are whole blocks, which more draws extend."""

    inputs: int
    draws: int


FIRST = Round(256, DRAWS_PER_BLOCK)


@dataclass(frozen=True)
class Width:
    """Half the width of a source's interval, and the two variances behind it."""

    half_width: float
    between: float
    within: float


@dataclass(frozen=True)
class Need:
    """What a round showed: the widths, the next round or None, and whether all are narrow enough.

    `inputs` would be needed with the draws of this round.
    """

    widths: dict[str, Width]
    following: Round | None
    reached: bool
    inputs: int


def whole_blocks(draws: int) -> int:
    """As many draws, rounded up to whole blocks.

    >>> whole_blocks(20)
    32
    """
    return -(-draws // DRAWS_PER_BLOCK) * DRAWS_PER_BLOCK


def judge(
    tallies: Mapping[str, Tally[Evaluate]],
    at: Round,
    limit: int,
    precision: float,
    confidence: float,
) -> Need:
    """Where the measurements of a round stand, and what to measure next of `limit` inputs."""
    z = float(norm.ppf((1 + confidence) / 2))
    allowed = (precision / z) ** 2
    widths = {name: _width(tally, z) for name, tally in tallies.items()}
    counted = {name: len(tally.headline_rates) for name, tally in tallies.items()}
    needed = max(
        math.ceil((width.between + width.within / at.draws) / allowed * at.inputs / counted[name])
        for name, width in widths.items()
    )
    if all(width.half_width <= precision for width in widths.values()):
        return Need(widths, None, True, needed)
    if at.inputs < limit:
        wanted = max(math.ceil(AHEAD * needed), at.inputs + 1)
        return Need(widths, Round(min(limit, wanted), at.draws), False, needed)
    draws = 0.0
    for name, width in widths.items():
        room = counted[name] * allowed - width.between
        draws = max(draws, width.within / room if room > 0 else math.inf)
    if draws > MOST_DRAWS:
        return Need(widths, None, False, needed)
    following = Round(at.inputs, max(whole_blocks(math.ceil(AHEAD * draws)), at.draws * 2))
    return Need(widths, following, False, needed)


def _width(tally: Tally[Evaluate], z: float) -> Width:
    x, m = tally.headline_rates, tally.draws
    total = float(np.var(np.append(x, [0.0, 1.0]), ddof=1))
    within = float((x * (1 - x)).mean()) * m / (m - 1)
    half_width = z * math.sqrt(total / len(x)) if len(x) else math.inf
    return Width(half_width, max(0.0, total - within / m), within)


@dataclass
class MemoryStore:
    """Blocks that are kept as long as the process runs."""

    blocks: Blocks | None = None

    def load(self, inputs: int) -> Blocks | None:
        """The blocks kept so far, or None."""
        return self.blocks if self.blocks is None or len(self.blocks.right) == inputs else None

    def save(self, blocks: Blocks, *, now: bool) -> None:
        """Keep the blocks."""
        self.blocks = blocks

    def finish(self, blocks: Blocks) -> None:
        """Keep the blocks of all ranks."""
        self.blocks = blocks


@dataclass
class GrowingStore:
    """Blocks of some of the inputs, at `rows` of all of them, kept as blocks of all.

    So a measurement of more of them, or with more draws, goes on where a smaller one ended.
    """

    whole: Store
    rows: IntArray
    inputs: int
    _held: Blocks | None = field(default=None, repr=False)

    def load(self, inputs: int) -> Blocks | None:
        """The blocks of the rows, or None where nothing is kept."""
        held = self.whole.load(self.inputs)
        if held is None:
            return None
        self._held = held
        rows, sums = self.rows, held.sums
        sums = sums[rows] if sums.size else sums
        return Blocks(held.right[rows], held.finished[rows], held.calls[rows], sums)

    def save(self, blocks: Blocks, *, now: bool) -> None:
        """Put the rows in their places and keep all."""
        self.whole.save(self._with(blocks), now=now)

    def finish(self, blocks: Blocks) -> None:
        """Keep the blocks of all ranks as those of one."""
        self.whole.finish(self._with(blocks))

    def _with(self, blocks: Blocks) -> Blocks:
        held = self._held = self._held or Blocks.none(self.inputs)
        held.right[self.rows] = blocks.right
        held.finished[self.rows] = blocks.finished
        held.calls[self.rows] = blocks.calls
        if blocks.sums.size:
            if not held.sums.size:
                held.sums = np.full((self.inputs, blocks.sums.shape[1]), -np.inf)
            held.sums[self.rows] = blocks.sums
        return held
