"""A universal perturbation: one delta for all inputs, the attack that sees no input.

It is fitted on the fit split and measured on the evaluate split: the unconditional AR.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from nppr.core.budget import Budget
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock, derive_seed
from nppr.core.tally import Fit, FrozenModel, IntArray, Metric, Progress
from nppr.errors import NoFitDataError, SpecError, require_at_most
from nppr.noise.rungs import Dependency
from nppr.sources.base import PASSES_PER_CALL, Guidance, Source

if TYPE_CHECKING:
    from torch import Tensor

    from nppr.data import Split
    from nppr.models import Classifier


INPUTS_PER_STEP = 64
"""Inputs of a step."""

PIECE = 16
"""Inputs that go through the classifier together."""


MOST_CALLS = 10**10


@dataclass(frozen=True)
class Universal(Source, kind="universal"):
    """Ascent of the mean margin over inputs of the fit split, in the budget.

    It takes `calls` forward and backward passes, in steps of `INPUTS_PER_STEP` inputs; every epoch
    goes through the split in a new random order. A step's size falls in a straight line from `step`
    radii to nothing. Each input counts until it is wrong by a margin of 1, so that those that
    are broken leave the direction to the others.
    """

    metric = Metric.AR
    guidance = Guidance.MORE
    sees = Dependency.INDEPENDENT
    needs_fit_split = True
    can_be_redrawn = False
    fixed_draws = 1

    budget: Budget
    calls: int = 30_720
    step: float = 0.25

    def __post_init__(self) -> None:
        if self.calls < INPUTS_PER_STEP:
            raise SpecError(
                f"`calls` must be a whole number >= {INPUTS_PER_STEP}, got {self.calls}."
            )
        require_at_most("calls", self.calls, MOST_CALLS)
        if not 0 < self.step <= 2:
            raise SpecError(f"`step` must lie in (0, 2], got {self.step}. Example: step=0.25")

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Refuse: it must be fitted first."""
        raise NoFitDataError(
            "`universal` must be fitted before it is measured."
            " Example: Universal(budget).fitted_on(classifier, data.fit)"
        )

    def fit_passes(self, inputs: int) -> float:
        return float(self.calls * PASSES_PER_CALL)

    def fitted_on(
        self,
        classifier: Classifier,
        split: Split[Fit],
        *,
        seed: int = 0,
        device: torch.device | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> UniversalOn:
        """The source for a classifier; it is fitted when it is first asked for a perturbation."""
        if not len(split):
            raise NoFitDataError(
                "the fit split must hold inputs for a universal perturbation, got none."
            )
        return UniversalOn(self.budget, self, classifier, split, seed, device, progress)


@dataclass(frozen=True, eq=False)
class SharedPattern(Source):
    """One perturbation for all inputs of one classifier, found on its fit split."""

    metric = Metric.AR
    sees = Dependency.INDEPENDENT
    can_be_redrawn = False
    fixed_draws = 1

    budget: Budget
    settings: Source
    classifier: Classifier
    split: Split[Fit]
    seed: int = 0
    device: torch.device | None = None
    progress: Callable[[Progress], None] | None = None

    @property
    def name(self) -> str:
        return self.settings.name

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The same perturbation for all, `(B, 1, C, H, W)`."""
        return self.delta.to(x).expand(len(x), 1, *self.delta.shape)

    @property
    @abstractmethod
    def delta(self) -> Tensor:
        """The perturbation `(C, H, W)`."""


@dataclass(frozen=True, eq=False)
class UniversalOn(SharedPattern):
    """A universal perturbation of one classifier."""

    guidance = Guidance.MORE
    settings: Universal

    @cached_property
    def delta(self) -> Tensor:
        """The perturbation `(C, H, W)`."""
        budget, steps = self.budget, self.settings.calls // INPUTS_PER_STEP
        shape = tuple(self.split.batch(np.arange(1))[0].shape[1:])
        delta = torch.zeros(budget.domain(shape), device=self.device)
        broken = seen = 0
        from nppr.models import frozen  # not before PyTorch is needed

        with frozen(self.classifier) as model:
            for number, positions in zip(range(steps), self._positions(), strict=False):
                x, y = self.split.batch(positions)
                x, y = x.to(delta.device), y.to(delta.device)
                gradient, logits = _in_pieces(budget, model, x, y, delta)
                size = self.settings.step * budget.radius * (1 - number / steps)
                delta = budget.clip(delta + size * budget.norm.steepest(gradient.mean(0)))
                logits, labels = model.to_classes(logits, y)
                broken += int((logits.argmax(1) != labels).sum())
                if self.progress:
                    seen += len(y)
                    total = seen + (steps - number - 1) * INPUTS_PER_STEP
                    self.progress(Progress(f"fit {self.name}", seen, total, seen - broken))
        return delta

    def _positions(self) -> Iterator[IntArray]:
        """The inputs of every step, without an end."""
        for epoch in itertools.count():
            seed = derive_seed(self.seed, "universal", 0, epoch) & 0xFFFFFFFF
            order = np.random.default_rng(seed).permutation(len(self.split))
            for start in range(0, len(order), INPUTS_PER_STEP):
                yield order[start : start + INPUTS_PER_STEP]


def _in_pieces(
    budget: Budget, model: FrozenModel, x: Tensor, y: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients in delta of the clipped margins, one per input, and logits."""
    found = [
        budget.gradient(
            model,
            lambda logits, y=labels: margin(*model.to_classes(logits, y)).clamp_max(1.0),  # type: ignore[misc]
            images,
            delta.expand(len(images), *delta.shape),
        )
        for images, labels in zip(x.split(PIECE), y.split(PIECE), strict=True)
    ]
    gradients, logits = (torch.cat([each[part] for each in found]) for part in (0, 1))
    return gradients, logits
