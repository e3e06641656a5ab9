"""A weak adversary: one step of an attack, then noise around the point it leads to."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

from nppr.budget import Budget
from nppr.draws import DrawBlock
from nppr.errors import SpecError
from nppr.sources.base import Source
from nppr.types import FrozenModel

__all__ = ["WeakAdversary"]

NAME = "weak-adversary"


@dataclass(frozen=True)
class WeakAdversary(Source):
    """One projected gradient step from a random point of the ball, then Gaussian draws around it.

    `step` is relative to the radius; `variance` is that of a pixel in [0, 1]. Each draw is projected
    to the budget, and all draws of an input surround the same point. The tally is read as PR.
    """

    kind = NAME

    budget: Budget
    variance: float = 0.1
    step: float = 0.25

    def __post_init__(self) -> None:
        for name in ("variance", "step"):
            if not 0 < getattr(self, name) < math.inf:
                raise SpecError(f"`{name}` must be a number > 0, got {getattr(self, name)}.")

    @property
    def cost(self) -> float:
        return 1.25

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        shape = tuple(x.shape[1:])
        first = replace(draws, block=0, size=1, capacity=1)
        start = self.budget.uniform(first, f"{NAME}/start", shape)[:, 0]
        gradient, _ = model.gradient(
            lambda logits: F.cross_entropy(logits, y, reduction="none"), (x + start).clamp(0, 1)
        )
        ascent = self.budget.norm.steepest(gradient)
        centre = self.budget.clip(start + self.step * self.budget.radius * ascent)
        noise = draws.normal(NAME, shape).mul_(math.sqrt(self.variance))
        return self.budget.clip(centre.unsqueeze(1) + noise)
