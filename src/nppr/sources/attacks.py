"""Attacks: sources that search for one bad perturbation per input. Their tally is read as AR."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from nppr.core.budget import Budget, perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel, Metric
from nppr.errors import SpecError, require_at_most
from nppr.sources.base import Guidance, Source

if TYPE_CHECKING:
    from torch import Tensor


MOST_STEPS = 10**5
"""Upper limits on steps and restarts."""


@dataclass(frozen=True)
class GradientAttack(Source, ABC):
    """Projected gradient ascent of a loss.

    `step` is relative to the radius; with `falling` it falls in a straight line to 0. An input is
    finished at its first wrong answer, so that it is broken if *any* visited point breaks it; each
    restart begins at another random point of the ball and takes the inputs that are left.
    """

    metric = Metric.AR
    guidance = Guidance.GRADIENTS
    fixed_draws = 1
    falling: ClassVar[bool] = False

    budget: Budget
    steps: int = 10
    step: float = 0.25
    restarts: int = 1
    random_start: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise SpecError(f"`{name}` must be a whole number >= 1, got {getattr(self, name)}.")
            require_at_most(name, getattr(self, name), MOST_STEPS)
        if not 0 < self.step < math.inf:
            raise SpecError(f"`step` must be a number > 0, got {self.step}. Example: step=0.25")
        if self.restarts > 1 and not self.random_start:
            raise SpecError("`restarts` must be 1 without a random start, they would all be equal.")

    @property
    def cost(self) -> float:
        return 1.0 + self.restarts * (3.0 * self.steps + 1.0)

    @abstractmethod
    def loss(self, model: FrozenModel, logits: Tensor, y: Tensor, turn: int) -> Tensor:
        """What step number `turn` increases, `(B, classes), (B,) -> (B,)`."""

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The first perturbation that breaks each input, else the last one tried, `(B, 1, C, H, W)`."""
        found = x.new_zeros(len(x), *self.budget.domain(tuple(x.shape[1:])))
        left = torch.arange(len(x), device=x.device)
        for restart in range(self.restarts):
            if len(left):
                start = self._start(x, draws, restart)[left]
                left = left[self._climb(model, x, y, left, start, found)]
        return found.unsqueeze(1)

    def _climb(
        self, model: FrozenModel, x: Tensor, y: Tensor, rows: Tensor, delta: Tensor, found: Tensor
    ) -> Tensor:
        """Climb from `delta` for the inputs `rows`; fill `found`; which of the rows survived."""
        survived = torch.ones(len(rows), dtype=torch.bool, device=x.device)
        active = torch.arange(len(rows), device=x.device)
        for turn in range(self.steps + 1):
            inputs, labels = x[rows[active]], y[rows[active]]
            if turn < self.steps:
                gradient, logits = self.budget.gradient(
                    model,
                    lambda logits, y=labels, turn=turn: self.loss(model, logits, y, turn),  # type: ignore[misc]
                    inputs,
                    delta,
                )
            else:
                with torch.no_grad():
                    logits = model.logits(perturbed(inputs, delta, self.budget))
            found[rows[active]] = delta
            logits, labels = model.to_classes(logits, labels)
            correct = logits.argmax(1) == labels
            survived[active[~correct]] = False
            active, delta = active[correct], delta[correct]
            if not len(active) or turn == self.steps:
                break
            ascent = self.budget.norm.steepest(gradient[correct])
            size = self.step * self.budget.radius * (1 - self.falling * turn / self.steps)
            delta = self._within(inputs[correct], delta + size * ascent)
        return survived

    def _start(self, x: Tensor, draws: DrawBlock, restart: int) -> Tensor:
        shape = self.budget.domain(tuple(x.shape[1:]))
        if not self.random_start:
            return x.new_zeros(len(x), *shape)
        return self._within(x, self.budget.uniform(draws, f"pgd/{restart}", shape)[:, 0])

    def _within(self, x: Tensor, delta: Tensor) -> Tensor:
        """Project to the budget, then, if it is added, to where `x + delta` is an image.

        The second projection only shortens a perturbation; clipping again undoes its rounding.
        """
        if self.budget.transform is not None:
            return self.budget.clip(delta)
        return self.budget.clip((x + self.budget.clip(delta)).clamp_(0.0, 1.0) - x)


@dataclass(frozen=True)
class PGD(GradientAttack, kind="pgd"):
    """Ascent of the cross-entropy and of the margin in turn, with a step that falls from the radius.

    Each loss leads on where the other is flat or misleads, and the falling step first crosses the ball
    and then refines. At equal cost fewer inputs withstand it than `pgd-classic`.
    """

    default = True
    falling = True
    presets = {"pgd-20": "pgd:steps=20:restarts=5"}

    step: float = 1.0

    def loss(self, model: FrozenModel, logits: Tensor, y: Tensor, turn: int) -> Tensor:
        if turn % 2:
            return margin(*model.to_classes(logits, y))
        return model.attacked_loss(logits, y)


@dataclass(frozen=True)
class ClassicPGD(GradientAttack, kind="pgd-classic"):
    """Ascent of the cross-entropy with a constant step (Madry et al., 2018).

    The presets have the paper's numbers of steps, each of a quarter of the radius: 3 for classifiers of
    standard training, 10 for adversarially trained ones.
    """

    presets = {"pgd-3": "pgd-classic:steps=3", "pgd-10": "pgd-classic:steps=10"}

    def loss(self, model: FrozenModel, logits: Tensor, y: Tensor, turn: int) -> Tensor:
        return model.attacked_loss(logits, y)


@dataclass(frozen=True)
class CW(GradientAttack, kind="cw"):
    """Ascent of the margin `max_{j != y} h_j - h_y` (Carlini and Wagner, 2017), in the budget.

    It does not flatten where the classifier is confident, as the cross-entropy does.
    """

    presets = {
        "cw-3": "cw:steps=3",
        "cw-10": "cw:steps=10",
        "cw-20": "cw:steps=20:restarts=5",
    }

    def loss(self, model: FrozenModel, logits: Tensor, y: Tensor, turn: int) -> Tensor:
        return margin(*model.to_classes(logits, y))


@dataclass(frozen=True)
class WeakAdversary(Source, kind="weak-adversary"):
    """One projected gradient step from a random point of the ball, then Gaussian draws around it.

    `step` is relative to the radius; `variance` is that of a pixel in [0, 1]. Each draw is projected to
    the budget, and all draws of an input surround the same point. The tally is read as PR.
    """

    guidance = Guidance.MORE
    transforms = False
    cost = 1.25

    budget: Budget
    variance: float = 0.1
    step: float = 0.25

    def __post_init__(self) -> None:
        for name in ("variance", "step"):
            if not 0 < getattr(self, name) < math.inf:
                raise SpecError(f"`{name}` must be a number > 0, got {getattr(self, name)}.")

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        shape = tuple(x.shape[1:])
        first = replace(draws, block=0, size=1, capacity=1)
        start = self.budget.uniform(first, f"{self.kind}/start", shape)[:, 0]
        gradient, _ = model.gradient(
            lambda logits: model.attacked_loss(logits, y), (x + start).clamp(0, 1)
        )
        ascent = self.budget.norm.steepest(gradient)
        centre = self.budget.clip(start + self.step * self.budget.radius * ascent)
        noise = draws.normal(self.kind, shape).mul_(math.sqrt(self.variance))
        return self.budget.clip(centre.unsqueeze(1) + noise)
