"""Attacks: sources that search for one bad perturbation per input. Their tally is read as AR."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.budget import Budget
from nppr.draws import DrawBlock
from nppr.errors import SpecError
from nppr.sources.base import Source
from nppr.sources.losses import margin
from nppr.types import FrozenModel, Metric

__all__ = ["CW", "PGD", "Climb"]


@dataclass(frozen=True)
class Climb(Source, ABC):
    """Projected gradient ascent of a loss.

    `step` is relative to the radius. An input is done with at its first wrong answer, so that an
    input is broken if *any* visited point breaks it; each restart begins at another random point of
    the ball and takes the inputs that are left.
    """

    metric = Metric.AR
    fixed_draws = 1

    budget: Budget
    steps: int = 10
    step: float = 0.25
    restarts: int = 1
    random_start: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise SpecError(f"`{name}` must be a whole number >= 1, got {getattr(self, name)}.")
        if not 0 < self.step < math.inf:
            raise SpecError(f"`step` must be a number > 0, got {self.step}. Example: step=0.25")
        if self.restarts > 1 and not self.random_start:
            raise SpecError("`restarts` must be 1 without a random start, they would all be equal.")

    @property
    def cost(self) -> float:
        return 1.0 + self.restarts * (3.0 * self.steps + 1.0)

    @abstractmethod
    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """What is increased, `(B, classes), (B,) -> (B,)`."""

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The first perturbation that breaks each input, else the last one tried, `(B, 1, C, H, W)`."""
        found = torch.zeros_like(x)
        left = torch.arange(len(x), device=x.device)
        for restart in range(self.restarts):
            if not len(left):
                break
            delta = self._start(x, draws, restart)[left]
            survived = self._climb(model, x, y, left, delta, found)
            left = left[survived]
        return found.unsqueeze(1)

    def _climb(
        self, model: FrozenModel, x: Tensor, y: Tensor, rows: Tensor, delta: Tensor, found: Tensor
    ) -> Tensor:
        """Climb from `delta` for the inputs `rows`; fill `found`; which of the rows survived."""
        survived = torch.ones(len(rows), dtype=torch.bool, device=x.device)
        active = torch.arange(len(rows), device=x.device)
        size = self.step * self.budget.radius
        for turn in range(self.steps + 1):
            inputs, labels = x[rows[active]], y[rows[active]]
            if turn < self.steps:
                gradient, logits = model.gradient(
                    lambda logits, labels=labels: self.loss(logits, labels),  # type: ignore[misc]
                    inputs + delta,
                )
            else:
                with torch.no_grad():
                    logits = model.logits(inputs + delta)
            found[rows[active]] = delta
            right = logits.argmax(1) == labels
            survived[active[~right]] = False
            active, delta = active[right], delta[right]
            if not len(active) or turn == self.steps:
                break
            ascent = self.budget.norm.steepest(gradient[right])
            delta = self._within(inputs[right], delta + size * ascent)
        return survived

    def _start(self, x: Tensor, draws: DrawBlock, restart: int) -> Tensor:
        if not self.random_start:
            return torch.zeros_like(x)
        shape = tuple(x.shape[1:])
        return self._within(x, self.budget.uniform(draws, f"pgd/{restart}", shape)[:, 0])

    def _within(self, x: Tensor, delta: Tensor) -> Tensor:
        """Project to the budget, then to where `x + delta` is an image.

        The second projection only shortens a perturbation; clipping again undoes its rounding.
        """
        return self.budget.clip((x + self.budget.clip(delta)).clamp_(0.0, 1.0) - x)


@dataclass(frozen=True)
class PGD(Climb):
    """Ascent of the cross-entropy (Madry et al., 2018)."""

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, reduction="none")


@dataclass(frozen=True)
class CW(Climb):
    """Ascent of the margin `max_{j != y} h_j - h_y` (Carlini and Wagner, 2017), in the budget.

    It does not flatten where the classifier is sure of itself, as the cross-entropy does.
    """

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return margin(logits, labels)
