"""The images a network learns from: the fit and select parts as one, read batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nppr.classifiers.wrap import Classifier, frozen
from nppr.data import Data, Part
from nppr.errors import DataError
from nppr.types import Fit, IntArray, Select

__all__ = ["Examples", "Normalisation", "accuracy", "image_shape"]

READ_AT_ONCE = 256
"""Images held at a time when a whole part is gone through."""


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of every channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Examples:
    """The fit part, then the select part; positions run over both."""

    parts: tuple[Part[Fit] | Part[Select], ...]

    @classmethod
    def of(cls, data: Data) -> Examples:
        """The training images of a data set; evaluate stays untouched."""
        parts = tuple(part for part in (data.fit, data.select) if len(part))
        if not parts:
            raise DataError(
                f"`data` must have a fit or a select part to train on, {data.name!r} has neither."
                " Give images that are divided into parts."
            )
        return cls(parts)

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, H, W) of an image."""
        return tuple(self.batch(np.arange(1))[0].shape[1:])

    def batch(self, positions: IntArray) -> tuple[Tensor, Tensor]:
        """Images `(B, C, H, W)` and labels `(B,)` at these positions, in their order."""
        rows, images, labels = [], [], []
        start = 0
        for part in self.parts:
            own = np.flatnonzero((positions >= start) & (positions < start + len(part)))
            if len(own):
                x, y = part.batch(positions[own] - start)
                rows.append(own)
                images.append(x)
                labels.append(y)
            start += len(part)
        order = torch.from_numpy(np.argsort(np.concatenate(rows)))
        return torch.cat(images)[order], torch.cat(labels)[order]

    def normalisation(self) -> Normalisation:
        """Mean and standard deviation of every channel, in one pass over the images.

        A channel that is constant is only centred: its standard deviation counts as 1.
        """
        sums = squares = torch.zeros(1, dtype=torch.float64)
        pixels = 0
        for positions in _runs(len(self)):
            x = self.batch(positions)[0].double()
            sums = sums + x.sum((0, 2, 3))
            squares = squares + x.square().sum((0, 2, 3))
            pixels += x[:, 0].numel()
        mean = sums / pixels
        std = (squares / pixels - mean.square()).clamp_min(0).sqrt()
        std = torch.where(std > 1e-6, std, torch.ones_like(std))
        return Normalisation(tuple(mean.tolist()), tuple(std.tolist()))

    def fingerprint(self) -> str:
        """Which images these are."""
        return "+".join(part.fingerprint()[:16] for part in self.parts)


def image_shape(data: Data) -> tuple[int, ...]:
    """(C, H, W) of the training images of a data set."""
    return Examples.of(data).shape


def accuracy(classifier: Classifier, data: Data) -> float:
    """Share of the evaluate inputs that are classified right."""
    right = 0
    with frozen(classifier) as model, torch.inference_mode():
        for positions in _runs(len(data.evaluate)):
            x, y = data.evaluate.batch(positions)
            answers = model.logits(x.to(classifier.device)).argmax(1)
            right += int((answers == y.to(answers.device)).sum())
    return right / len(data.evaluate)


def _runs(length: int) -> Iterator[IntArray]:
    """Positions 0..length-1 in short runs."""
    for start in range(0, length, READ_AT_ONCE):
        yield np.arange(start, min(start + READ_AT_ONCE, length), dtype=np.int64)
