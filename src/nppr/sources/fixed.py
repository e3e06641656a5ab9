"""Noise of a fixed distribution, projected to the budget: the sources of PR.

With r the radius, D = C*H*W and `scale` a factor (1 by default), before the projection:

    source     linf                          l2
    gaussian   N(0, (scale r)^2) per pixel   N(0, (scale r / sqrt(D))^2) per pixel
    laplace    Laplace(scale r) per pixel    Laplace(scale r / sqrt(D)) per pixel
    uniform    uniform in the ball of radius scale r

In the box of a transformation, with coordinates from -r to r, uniform is the same, and gaussian is
N(0, (scale r / 2)^2) per coordinate, truncated to the box.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nppr.core.budget import Budget
from nppr.core.losses import log_loss
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Estimate, Evaluate, FrozenModel, Metric, Tally
from nppr.errors import SpecError
from nppr.noise.rungs import Dependency
from nppr.noise.structures import WHITE
from nppr.sources.base import Source
from nppr.statistics.noise_sets import STATED_SETS, STATED_SETS_IN_BOX

if TYPE_CHECKING:
    from torch import Tensor

SMALLEST_UNIFORM = 2.0**-25
"""Half the spacing of the generator's uniform numbers: keeps the logarithm of Laplace finite."""


@dataclass(frozen=True)
class Noise(Source, ABC):
    """Noise that sees neither the input nor the classifier."""

    is_fixed_noise = True
    sees = Dependency.INDEPENDENT
    structure = WHITE

    budget: Budget
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise SpecError(f"`scale` must be a number > 0, got {self.scale}. Example: scale=0.5")

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        return self.budget.clip(self.sample(draws, self.budget.domain(tuple(x.shape[1:]))))

    @abstractmethod
    def sample(self, draws: DrawBlock, shape: tuple[int, ...]) -> Tensor:
        """Noise before the projection, `(B, S, *shape)`."""

    def pixel_scale(self, shape: tuple[int, ...]) -> float:
        """Scale of the noise of one pixel."""
        return self.scale * self.budget.norm.noise_scale(self.budget.radius, math.prod(shape))

    @property
    def moved_by_splitting(self) -> Source:
        return self

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """PR, and bounds for all noise of a few sets around it, which take no further draws."""
        from nppr.statistics.lower_bounds import (  # not before PyTorch is needed
            PerInputDraws,
            estimate_bounds_jointly,
        )

        rows = super().read(tally, clean, confidence, seed)
        if self.metric is not Metric.PR or not tally.is_exact:  # bounds need exact counts
            return rows
        stated = STATED_SETS if self.budget.transform is None else STATED_SETS_IN_BOX
        bounds = estimate_bounds_jointly(
            PerInputDraws(tally, seed), stated, confidence, infima=False
        )
        return [*rows, *(replace(row, reference=self.name) for row in bounds)]


@dataclass(frozen=True)
class Gaussian(Noise, kind="gaussian"):
    """Independent normal noise in every pixel; a truncated normal law of every parameter."""

    is_reference = default = True

    def sample(self, draws: DrawBlock, shape: tuple[int, ...]) -> Tensor:
        budget = self.budget
        return budget.norm.normal(draws, "gaussian", shape, budget.radius, self.scale)


@dataclass(frozen=True)
class Uniform(Noise, kind="uniform"):
    """Uniform noise in the ball, shrunk or stretched by `scale`."""

    is_reference = default = True

    def sample(self, draws: DrawBlock, shape: tuple[int, ...]) -> Tensor:
        noise = self.budget.uniform(draws, "uniform", shape)
        return noise if self.scale == 1.0 else noise.mul_(self.scale)


@dataclass(frozen=True)
class Laplace(Noise, kind="laplace"):
    """Independent Laplace noise in every pixel: `-b sign(u) log|u|` with u uniform in [-1, 1)."""

    is_reference = default = folds_uniform = True
    transforms = False

    def sample(self, draws: DrawBlock, shape: tuple[int, ...]) -> Tensor:
        u = draws.uniform("laplace", shape).mul_(2).sub_(1)
        size = u.abs().clamp_min_(SMALLEST_UNIFORM).log_().mul_(-self.pixel_scale(shape))
        return size.copysign_(u)


@dataclass(frozen=True)
class Clean(Source):
    """No perturbation: its tally gives the clean accuracy."""

    kind = "clean"
    budget = None
    metric = Metric.ACCURACY
    fixed_draws = 1

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Zeros, `(B, 1, C, H, W)`."""
        return x.new_zeros(x.shape).unsqueeze(1)

    def observe(self, logits: Tensor, y: Tensor) -> Tensor:
        """The logarithm of the standard loss, `(B, 1, classes), (B,) -> (B, 1)`."""
        return log_loss(logits, y)

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """The clean accuracy."""
        from nppr.statistics import estimates  # not before PyTorch is needed

        return [estimates.estimate_accuracy(tally, confidence)]
