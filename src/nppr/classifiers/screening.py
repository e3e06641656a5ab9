"""Screening: a coarse engine takes the clear decisions, the model takes the others.

16-bit floats are about twice as fast as 32-bit ones where the processor computes with them, and their
logits are off by about a hundredth. That is nothing for most images and too much for some. So the
coarse engine goes first, and every image whose margin

    m = max_{j != y} h_j - h_y

is within a band around 0 goes through the model as well, whose logits then count. The band is several
times as wide as the errors of a probe, and at least twice the largest error seen since: every image
inside it shows one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nppr.classifiers.classifier import Classifier, Engine, FrozenClassifier, frozen
from nppr.losses import margin

BAND = 6.0
"""Half-width of the band in root mean squares of the largest error of an image of the probe.

The error of the one difference of logits that decides is smaller: the band is about 10 of its standard
deviations wide, and in 50,000 draws on CIFAR-10 the largest was 5 to 7 of them.
"""

SAFETY = 2.0
"""The band is at least this many times as wide as the largest error seen."""

NOISE = (0.0, 0.02, 0.05, 0.1)
"""Radii of the uniform noise on the images by which errors are judged."""

WORTHWHILE = 0.9
"""A screen must take at most this share of the time of the model."""

ENOUGH = 2048
"""Images after which it is asked whether too many are unclear."""


@dataclass(frozen=True, eq=False)
class CoarseEngine:
    """A coarse engine, and what it does to a classifier."""

    engine: Engine
    band: float
    """Margins of at most this, in logits, are decided by the model."""
    unclear: float
    """Share of such images in the probe."""
    cost: float = 0.0
    """Time of a forward pass over that of the model."""

    @property
    def share_of_time(self) -> float:
        """Time of screening over that of the model alone, if all images were like the probe."""
        return self.cost + self.unclear


def calibrate(engine: Engine, classifier: Classifier, probe: Tensor) -> CoarseEngine:
    """How wide the band must be for this engine, judged on `probe` inputs with uniform noise.

    The error of an image is the largest of the differences between its top logit and another one.
    """
    noise = torch.Generator().manual_seed(0)
    errors, gaps = [], []
    coarse = FrozenClassifier(classifier.with_engine(engine))
    with frozen(classifier) as model, torch.inference_mode():
        for radius in NOISE:
            u = torch.rand(probe.shape, generator=noise).to(probe.device)
            x = (probe + radius * (2 * u - 1)).clamp(0, 1)
            true, ours = model.logits(x).float(), coarse.logits(x)
            top = true.argmax(1, keepdim=True)
            moved = (ours - ours.gather(1, top)) - (true - true.gather(1, top))
            errors.append(moved.abs().amax(1))
            largest = ours.topk(2, dim=1).values
            gaps.append(largest[:, 0] - largest[:, 1])
    band = BAND * float(torch.cat(errors).square().mean().sqrt())
    return CoarseEngine(engine, band, float((torch.cat(gaps) <= band).float().mean()))


class Screen:
    """Logits of a coarse engine where they decide, else those of the model, which counts all images."""

    def __init__(self, coarse: CoarseEngine, model: FrozenClassifier) -> None:
        self.model = model
        self.coarse = FrozenClassifier(
            model.classifier.with_engine(coarse.engine), quantise=model.quantise
        )
        self.band = coarse.band
        self.cost = coarse.cost
        self.seen = self.unclear = 0

    @property
    def pays(self) -> bool:
        """Whether it has been faster than the model alone, as far as can be said."""
        return self.seen < ENOUGH or self.cost + self.unclear / self.seen < 1

    def logits(self, x: Tensor, y: Tensor, size: int) -> Tensor:
        """Logits `(N, classes)` of images and labels, in micro-batches of this size."""
        if not self.pays:
            return self._exact(x, size)
        logits = torch.cat([self.coarse.logits(some) for some in x.split(size)])
        margins = margin(logits, y)
        rows = (~(margins.abs() > self.band)).nonzero().flatten()  # NaN is unclear
        self.seen += len(x)
        self.unclear += len(rows)
        self.model.calls += len(x) - len(rows)
        if len(rows):
            exact = self._exact(x[rows], size)
            error = float((margin(exact, y[rows]) - margins[rows]).abs().max())
            self.band = max(self.band, SAFETY * error)
            logits[rows] = exact
        return logits

    def _exact(self, x: Tensor, size: int) -> Tensor:
        return torch.cat([self.model.logits(some).float() for some in x.split(size)])
