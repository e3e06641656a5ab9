"""The images that a network is trained on: their order in an epoch, their shifts and flips.

These depend only on (seed, epoch) and on the position of an image among the examples, so a resumed
epoch continues as if it had not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.core.random_draws import derive_seed
from nppr.core.tally import IntArray
from nppr.data import Data
from nppr.errors import DataError
from nppr.models.classifier import Classifier, frozen
from nppr.train.training_settings import TrainSettings

READ_AT_ONCE = 256
"""Images in memory while a whole split is read."""

ORDER_RANGE = 2**62
"""Upper limit of the random numbers whose order shuffles the examples; ties do not occur."""


class Examples:
    """The fit split followed by the select split; positions count through both."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.splits = tuple(split for split in (data.fit, data.select) if len(split))
        if not self.splits:
            raise DataError(
                f"`data` must have a fit or a select split to train on, {data.name!r} has neither."
                " Give images that are divided into splits."
            )

    def __len__(self) -> int:
        return sum(len(split) for split in self.splits)

    def batch(self, positions: IntArray) -> tuple[Tensor, Tensor]:
        """Return the images `(B, C, H, W)` and labels `(B,)` at these positions, in their order."""
        parts, start = [], 0
        for split in self.splits:
            rows = np.flatnonzero((positions >= start) & (positions < start + len(split)))
            if len(rows):
                parts.append((rows, *split.batch(positions[rows] - start)))
            start += len(split)
        places, images, labels = zip(*parts, strict=True)
        order = torch.from_numpy(np.argsort(np.concatenate(places)))
        return torch.cat(images)[order], torch.cat(labels)[order]

    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and standard deviation of every channel, 1 for the latter if it is constant."""
        sums = squares = torch.zeros(1, dtype=torch.float64)
        pixels = 0
        for positions in _chunks(len(self)):
            x = self.batch(positions)[0].double()
            sums = sums + x.sum((0, 2, 3))
            squares = squares + x.square().sum((0, 2, 3))
            pixels += x[:, 0].numel()
        mean = sums / pixels
        std = (squares / pixels - mean.square()).clamp_min(0).sqrt()
        std = torch.where(std > 1e-6, std, torch.ones_like(std))
        return tuple(mean.tolist()), tuple(std.tolist())

    def fingerprint(self) -> str:
        """Return a hash of the images."""
        return "+".join(split.fingerprint()[:16] for split in self.splits)


def image_shape(data: Data) -> tuple[int, ...]:
    """Return the shape (C, H, W) of the training images of a data set."""
    return tuple(Examples(data).batch(np.arange(1))[0].shape[1:])


def measure_accuracy(classifier: Classifier, data: Data) -> float:
    """Return the fraction of the evaluate split that is classified correctly."""
    correct = 0
    with frozen(classifier) as model, torch.inference_mode():
        for positions in _chunks(len(data.evaluate)):
            x, y = data.evaluate.batch(positions)
            answers = model.logits(x.to(classifier.device)).argmax(1)
            correct += int((answers == y.to(answers.device)).sum())
    return correct / len(data.evaluate)


def _chunks(length: int) -> Iterator[IntArray]:
    """Yield the positions 0..length-1 in chunks."""
    for start in range(0, length, READ_AT_ONCE):
        yield np.arange(start, min(start + READ_AT_ONCE, length), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """Batches of N examples in one epoch, their shifts `(N, 2)`, and whether each is flipped `(N,)`."""

    batches: tuple[IntArray, ...]
    shifts: Tensor
    flips: Tensor

    @classmethod
    def draw(cls, settings: TrainSettings, examples: int, epoch: int) -> EpochPlan:
        """Draw the plan of an epoch, counted from 1."""

        def integers(purpose: str, shape: tuple[int, ...], low: int, high: int) -> Tensor:
            seed = derive_seed(settings.seed, f"train/{purpose}", epoch, 0)
            generator = torch.Generator().manual_seed(seed)
            return torch.randint(low, high, shape, generator=generator, device=generator.device)

        order = integers("order", (examples,), 0, ORDER_RANGE).argsort(stable=True)
        shifts = integers("shift", (examples, 2), -settings.crop, settings.crop + 1)
        coins = integers("flip", (examples,), 0, 2)
        # Batches of nearly equal size: a last batch of one image would have no batch statistics.
        batches = np.array_split(order.numpy(), steps_per_epoch(settings, examples))
        return cls(tuple(batches), shifts, coins.bool() & settings.flip)

    def augment(self, x: Tensor, positions: IntArray) -> Tensor:
        """Return the images `(B, C, H, W)` at these positions, shifted and flipped as planned."""
        rows = torch.from_numpy(positions)
        return flip_images(shift_images(x, self.shifts[rows]), self.flips[rows])


def steps_per_epoch(settings: TrainSettings, examples: int) -> int:
    """Return the number of batches in an epoch."""
    return math.ceil(examples / settings.batch_size)


def shift_images(x: Tensor, by: Tensor) -> Tensor:
    """Shift each image down and right by whole pixels `by` `(B, 2)`; the border is repeated."""
    most = int(by.abs().max()) if len(by) else 0
    if not most:
        return x
    height, width = x.shape[-2:]
    padded = F.pad(x, (most, most, most, most), mode="replicate")
    rows = torch.arange(height).view(1, -1, 1) + (most - by[:, 0]).view(-1, 1, 1)
    columns = torch.arange(width).view(1, 1, -1) + (most - by[:, 1]).view(-1, 1, 1)
    inputs = torch.arange(len(x)).view(-1, 1, 1)
    return padded[inputs, :, rows, columns].permute(0, 3, 1, 2).contiguous()


def flip_images(x: Tensor, which: Tensor) -> Tensor:
    """Mirror the images for which `which` `(B,)` is true from left to right."""
    return torch.where(which.view(-1, 1, 1, 1), x.flip(-1), x)
