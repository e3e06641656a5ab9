"""Screening: a copy of the model in 16-bit floats takes clear decisions, the model takes the others.

16-bit floats are about twice as fast as 32-bit floats on some processors, with small errors in the
logits. The copy classifies first. Every image whose margin

    m = max_{j != y} h_j - h_y

is within a band around 0 is then classified by the model, whose logits count. The band is several
times as wide as the errors on a probe. This makes wrong decisions rare but proves nothing, so the
model repeats a random share of the decisions that the copy takes alone.
`nppr.statistics.estimates.Allowance` states the resulting guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nppr.core.budget import quantised
from nppr.core.losses import margin
from nppr.errors import ClassifierError
from nppr.models.classifier import Classifier, FrozenClassifier, frozen
from nppr.system.specs import BFLOAT16

BAND = 6.0
"""Half-width of the band, in root mean squares of the largest error of each image of the probe.

The error of the one difference of logits that decides is smaller: the band is about 8 of its
standard deviations wide, and in 50,000 draws on CIFAR-10 the largest was 5.3 (resnet20) and 6.6
(resnet18).
"""

SAFETY = 2.0
"""Least width of the band, in multiples of the largest error on the probe."""

OUTLIER = 5.0
"""Largest error allowed, in the same root mean squares; of 256 normal errors the largest is about 3."""

NOISE = (0.0, 0.02, 0.05, 0.1)
"""Radii of the uniform noise added to the images on which errors are measured."""

CLOSE = 1e-4
"""Margin relative to the largest logit below which an audited decision counts as contradicted."""

LEAST_SHARE, MOST_SHARE = 0.02, 0.5
"""Smallest and largest share of decisions to repeat; above the largest, nothing is gained."""

NOTICED = 0.8
"""Least probability that the audit notices an input with all draws decided wrongly."""

AUDIT_ERROR = 0.005
"""Error of the audit at which `WIDENING` is computed: a tenth of the error at 95 %."""

WIDENING = 0.02
"""Largest widening of intervals; a source that needs more is measured exactly."""


@dataclass(frozen=True, eq=False)
class ScreeningCopy:
    """A copy of a model in 16-bit floats, and the cost of screening with it."""

    run: Callable[[Tensor], Tensor]
    """Map normalised inputs to logits."""
    band: float
    """Largest margin, in logits, at which the model decides."""
    unclear: float
    """Share of images of the probe with such a margin."""
    cost: float = 0.0
    """Time of the copy, as a share of the time of the model."""

    @property
    def share_of_time(self) -> float:
        """Time of screening images like the probe, as a share of the time of the model."""
        return self.cost + self.unclear + LEAST_SHARE

    def logits(self, model: FrozenClassifier, x: Tensor, size: int) -> Tensor:
        """Return the copy's logits for images in [0, 1], `(N, classes)`; NaN if the copy fails."""
        try:
            seen = quantised(x) if model.quantise else x
            parts = model.classifier.normalised(seen).split(size)
            return torch.cat([self.run(part).float() for part in parts])
        except Exception:  # a traced model may fail in any way; the model then decides
            return torch.full((len(x), 1), torch.nan, device=x.device)


def calibrate(
    run: Callable[[Tensor], Tensor], classifier: Classifier, probe: Tensor
) -> ScreeningCopy:
    """Find the width of the band for a copy, on a probe `(B, C, H, W)` with uniform noise.

    The error of an image is the largest one of a difference between its top logit and another.
    """
    noise = torch.Generator().manual_seed(0)
    errors, gaps = [], []
    with frozen(classifier) as model, torch.inference_mode():
        for radius in NOISE:
            u = torch.rand(probe.shape, generator=noise).to(probe.device)
            x = (probe + radius * (2 * u - 1)).clamp(0, 1)
            true = model.logits(x).float()
            ours = run(classifier.normalised(x.clone()))
            top = true.argmax(1, keepdim=True)
            moved = (ours - ours.gather(1, top)) - (true - true.gather(1, top))
            errors.append(moved.abs().amax(1))
            largest = ours.topk(2, dim=1).values
            gaps.append(largest[:, 0] - largest[:, 1])
    every = torch.cat(errors)
    typical, worst = float(every.square().mean().sqrt()), float(every.max())
    if not worst <= OUTLIER * typical:  # also true for NaN
        raise ClassifierError(
            f"`engine` {BFLOAT16} must have errors of about one size on this model, but some are much"
            " larger. Leave out --engine."
        )
    band = max(BAND * typical, SAFETY * worst)
    return ScreeningCopy(run, band, float((torch.cat(gaps) <= band).float().mean()))


def audit_share(inputs: int, draws: int) -> float:
    """Return the share of the copy's decisions to repeat, or 0 if the source must be exact.

    With S draws and a share q, the audit notices an input whose draws are all wrong with
    probability `1 - (1 - q)^S`; see `nppr.statistics.estimates.Allowance` for the resulting
    guarantee.

    >>> [round(audit_share(*each), 3) for each in ((500, 100), (500, 16), (100, 100), (500, 2))]
    [0.02, 0.096, 0.0, 0.0]
    """
    share = max(LEAST_SHARE, 1 - (1 - NOTICED) ** (1 / draws))
    noticed = 1 - (1 - share) ** draws
    wide = -math.log(AUDIT_ERROR) > WIDENING * inputs * noticed
    return 0.0 if wide or share > MOST_SHARE else share


@dataclass(frozen=True, eq=False)
class Screen:
    """The copy and the model together; the model repeats a `share` of the copy's decisions."""

    copy: ScreeningCopy
    model: FrozenClassifier
    share: float

    def logits(self, x: Tensor, y: Tensor, coins: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return logits `(N, classes)` of labelled images, in micro-batches of `size`, and the audit.

        `coins` `(N,)` are uniform in [0, 1) and independent of the images. The audit `(N, 3)` marks
        decisions that the copy took alone, those of them that were repeated, and those that the
        model contradicted.
        """
        logits = self.copy.logits(self.model, x, size)
        margins = margin(logits, y) if logits.shape[1] > 1 else logits[:, 0]
        clear = margins.abs() > self.copy.band  # NaN is unclear
        audited = clear & (coins < self.share)
        rows = (~clear | audited).nonzero().flatten()
        contradicted = torch.zeros_like(clear)
        self.model.calls += len(x) - len(rows)
        if len(rows):
            exact = torch.cat([self.model.logits(some).float() for some in x[rows].split(size)])
            true = margin(exact, y[rows])
            differs = (true < 0) != (margins[rows] < 0)
            close = true.abs() <= CLOSE * exact.abs().amax(1)
            contradicted[rows] = audited[rows] & (differs | close | true.isnan())
            logits = logits.expand(-1, exact.shape[1]).clone()
            logits[rows] = exact
        return logits, torch.stack([clear, audited, contradicted], 1)
