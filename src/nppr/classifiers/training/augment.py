"""The order of an epoch, and how each image is moved in it.

All of it depends on (seed, epoch) and on the position of an image among the examples, never on how
far a training has come in one go: a resumed epoch goes on as if it had not been interrupted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.classifiers.training.settings import TrainSettings
from nppr.draws import key
from nppr.types import IntArray

__all__ = ["EpochPlan", "flipped", "shifted", "steps_per_epoch"]

LARGE = 2**62
"""Sorting numbers below this gives an order: that two of them are equal is out of the question."""


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """N examples in one epoch: their batches, their shifts `(N, 2)` and whether they are mirrored."""

    batches: tuple[IntArray, ...]
    shifts: Tensor
    flips: Tensor

    @classmethod
    def draw(cls, settings: TrainSettings, examples: int, epoch: int) -> EpochPlan:
        """The plan of an epoch, counted from 1."""
        order = _numbers(settings.seed, "order", epoch, (examples,), 0, LARGE).argsort(stable=True)
        most = settings.crop
        shifts = _numbers(settings.seed, "shift", epoch, (examples, 2), -most, most + 1)
        coins = _numbers(settings.seed, "flip", epoch, (examples,), 0, 2)
        # Batches of nearly equal size: a last batch of one image would have no batch statistics.
        batches = np.array_split(order.numpy(), steps_per_epoch(settings, examples))
        return cls(tuple(batches), shifts, coins.bool() & settings.flip)

    def augmented(self, x: Tensor, positions: IntArray) -> Tensor:
        """The images `(B, C, H, W)` at these positions, moved as planned."""
        rows = torch.from_numpy(positions)
        return flipped(shifted(x, self.shifts[rows]), self.flips[rows])


def steps_per_epoch(settings: TrainSettings, examples: int) -> int:
    """Batches of an epoch."""
    return math.ceil(examples / settings.batch_size)


def shifted(x: Tensor, by: Tensor) -> Tensor:
    """Each image moved down and right by whole pixels `by` `(B, 2)`; its border is repeated."""
    most = int(by.abs().max()) if len(by) else 0
    if not most:
        return x
    height, width = x.shape[-2:]
    padded = F.pad(x, (most, most, most, most), mode="replicate")
    rows = torch.arange(height).view(1, -1, 1) + (most - by[:, 0]).view(-1, 1, 1)
    columns = torch.arange(width).view(1, 1, -1) + (most - by[:, 1]).view(-1, 1, 1)
    inputs = torch.arange(len(x)).view(-1, 1, 1)
    return padded[inputs, :, rows, columns].permute(0, 3, 1, 2).contiguous()


def flipped(x: Tensor, which: Tensor) -> Tensor:
    """The images mirrored left to right where `which` `(B,)` says so."""
    return torch.where(which.view(-1, 1, 1, 1), x.flip(-1), x)


def _numbers(
    seed: int, purpose: str, epoch: int, shape: tuple[int, ...], low: int, high: int
) -> Tensor:
    """Whole numbers in low..high-1, on the device where images are read."""
    generator = torch.Generator().manual_seed(key(seed, f"train/{purpose}", epoch, 0))
    return torch.randint(low, high, shape, generator=generator, device=generator.device)
