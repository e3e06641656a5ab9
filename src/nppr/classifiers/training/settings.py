"""What determines a training: every choice, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from nppr.budget import Budget
from nppr.errors import SpecError

__all__ = ["Adversary", "Method", "Optimiser", "TrainSettings"]

Value = str | int | float | bool | None


class Method(StrEnum):
    """What the network is trained on."""

    STANDARD = "standard"
    PGD = "pgd"


class Optimiser(StrEnum):
    """`sgd` with momentum, or `adam` with decoupled weight decay (AdamW)."""

    SGD = "sgd"
    ADAM = "adam"


@dataclass(frozen=True)
class Adversary:
    """The attack of PGD training: ascent of the cross-entropy from a random point of the budget.

    `step` is relative to the radius. The defaults are PGD-10 as in the paper.
    """

    budget: Budget
    steps: int = 10
    step: float = 0.25

    def __post_init__(self) -> None:
        _require_at_least("attack-steps", self.steps, 1)
        if not 0 < self.step < math.inf:
            raise SpecError(f"`attack-step` must be a number > 0, got {self.step}. Example: 0.25")


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained. `default_settings` has the choices for a network and its data.

    `warm_up` is the share of all steps in which the learning rate rises. `crop` is the largest shift
    in pixels, `flip` mirrors every second image on average. `momentum` belongs to SGD alone. With an
    `adversary`, perturbed images take the place of the clean ones. `threads` is the number of CPU
    threads, None for PyTorch's choice; it changes the order of sums and so the last digits.
    """

    epochs: int = 30
    batch_size: int = 128
    optimiser: Optimiser = Optimiser.SGD
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    momentum: float = 0.9
    warm_up: float = 0.1
    label_smoothing: float = 0.0
    crop: int = 0
    flip: bool = False
    adversary: Adversary | None = None
    stem: str | None = None
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _require_at_least("epochs", self.epochs, 1)
        _require_at_least("batch-size", self.batch_size, 1)
        _require_at_least("crop", self.crop, 0)
        if self.threads is not None:
            _require_at_least("threads", self.threads, 1)
        if not 0 < self.learning_rate < math.inf:
            raise SpecError(
                f"`learning-rate` must be a number > 0, got {self.learning_rate}. Example: 0.1"
            )
        if not 0 <= self.weight_decay < math.inf:
            raise SpecError(
                f"`weight-decay` must be a number >= 0, got {self.weight_decay}. Example: 5e-4"
            )
        for name in ("momentum", "warm_up", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise SpecError(
                    f"`{name.replace('_', '-')}` must be a number >= 0 and < 1,"
                    f" got {getattr(self, name)}."
                )

    @property
    def method(self) -> Method:
        """Standard training, or PGD training where there is an adversary."""
        return Method.STANDARD if self.adversary is None else Method.PGD

    def described(self) -> dict[str, Value]:
        """All choices by the name of their option, as JSON can hold them.

        >>> TrainSettings(epochs=3).described()["epochs"]
        3
        """
        named: dict[str, Value] = {"method": self.method.value}
        for field in fields(self):
            if field.name != "adversary":
                named[field.name.replace("_", "-")] = getattr(self, field.name)
        if self.optimiser is not Optimiser.SGD:
            del named["momentum"]
        if self.adversary is not None:
            named["norm"] = self.adversary.budget.norm.name
            named["eps"] = self.adversary.budget.radius
            named["attack-steps"] = self.adversary.steps
            named["attack-step"] = self.adversary.step
        return named


def _require_at_least(argument: str, value: int, least: int) -> None:
    if value < least:
        raise SpecError(f"`{argument}` must be a whole number >= {least}, got {value}.")
