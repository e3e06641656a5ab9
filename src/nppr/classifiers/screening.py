"""Screening: a coarse engine takes the clear decisions, the model takes the others.

16-bit floats are about twice as fast as 32-bit ones where the processor computes with them, and their
logits are off by a little. That is nothing for most images and too much for some. So the coarse engine
goes first, and every image whose margin

    m = max_{j != y} h_j - h_y

is within a band around 0 goes through the model as well, whose logits then count. The band is several
times as wide as the errors of a probe, and at least twice the largest error seen: every image inside
it shows one. A model whose errors have a few that stick out is not screened, nor is one that takes
steps (see `nppr.classifiers.forward_engines`), where a small error can become a large one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nppr.classifiers.classifier import Classifier, Engine, FrozenClassifier, frozen
from nppr.errors import ClassifierError
from nppr.losses import margin

BAND = 6.0
"""Half-width of the band in root mean squares of the largest error of an image of the probe.

The error of the one difference of logits that decides is smaller: the band is about 8 of its standard
deviations wide, and in 50,000 draws on CIFAR-10 the largest was 5.3 (resnet20) and 6.6 (resnet18).
"""

SAFETY = 2.0
"""The band is at least this many times as wide as the largest error seen."""

OUTLIER = 5.0
"""Largest error in the same root mean squares; of 256 normal errors the largest is about 3."""

NOISE = (0.0, 0.02, 0.05, 0.1)
"""Radii of the uniform noise on the images by which errors are judged."""

WORTHWHILE = 0.9
"""A screen must take at most this share of the time of the model."""

ENOUGH = 2048
"""Images after which it is asked whether too many are unclear."""


@dataclass(eq=False)
class CoarseEngine:
    """A coarse engine, and what it does to a classifier."""

    engine: Engine
    band: float
    """Margins of at most this, in logits, are decided by the model; it grows with errors seen."""
    unclear: float
    """Share of such images in the probe."""
    cost: float = 0.0
    """Time of a forward pass over that of the model."""

    @property
    def share_of_time(self) -> float:
        """Time of screening over that of the model alone, if all images were like the probe."""
        return self.cost + self.unclear


def calibrate(engine: Engine, classifier: Classifier, probe: Tensor, size: int) -> CoarseEngine:
    """How wide the band must be for this engine, judged on `probe` inputs with uniform noise.

    The error of an image is the largest of the differences between its top logit and another one.
    """
    noise = torch.Generator().manual_seed(0)
    errors, gaps = [], []
    with frozen(classifier) as model, torch.inference_mode():
        for radius in NOISE:
            u = torch.rand(probe.shape, generator=noise).to(probe.device)
            for x in (probe + radius * (2 * u - 1)).clamp(0, 1).split(size):
                true = model.logits(x).float()
                ours = engine.run(classifier.normalised(x.clone()))  # not replaced by the model
                top = true.argmax(1, keepdim=True)
                moved = (ours - ours.gather(1, top)) - (true - true.gather(1, top))
                errors.append(moved.abs().amax(1))
                largest = ours.topk(2, dim=1).values
                gaps.append(largest[:, 0] - largest[:, 1])
    every = torch.cat(errors)
    typical, worst = float(every.square().mean().sqrt()), float(every.max())
    if not worst <= OUTLIER * typical:  # NaN is not
        raise ClassifierError(
            f"`engine` {engine.name} must have errors of about one size, but some are much larger."
            " Leave out --engine, or choose eager."
        )
    band = max(BAND * typical, SAFETY * worst)
    return CoarseEngine(engine, band, float((torch.cat(gaps) <= band).float().mean()))


class Screen:
    """Logits of a coarse engine where they decide, else those of the model, which counts all images."""

    def __init__(self, used: CoarseEngine, model: FrozenClassifier) -> None:
        self.used = used
        self.model = model
        self.coarse = FrozenClassifier(
            model.classifier.with_engine(used.engine), quantise=model.quantise
        )
        self.seen = self.unclear = 0

    @property
    def pays(self) -> bool:
        """Whether it has been faster than the model alone, as far as can be said."""
        return self.seen < ENOUGH or self.used.cost + self.unclear / self.seen < 1

    def logits(self, x: Tensor, y: Tensor, size: int) -> Tensor:
        """Logits `(N, classes)` of images and labels, in micro-batches of this size."""
        if not self.pays:
            return self._exact(x, size)
        logits = torch.cat([self.coarse.logits(some).float() for some in x.split(size)])
        margins = margin(logits, y)
        rows = (~(margins.abs() > self.used.band)).nonzero().flatten()  # NaN is unclear
        self.seen += len(x)
        self.unclear += len(rows)
        self.model.calls += len(x) - len(rows)
        if len(rows):
            exact = self._exact(x[rows], size)
            errors = (margin(exact, y[rows]) - margins[rows]).abs().nan_to_num(0.0)
            self.used.band = max(self.used.band, SAFETY * float(errors.max()))
            logits[rows] = exact
        return logits

    def _exact(self, x: Tensor, size: int) -> Tensor:
        return torch.cat([self.model.logits(some).float() for some in x.split(size)])
