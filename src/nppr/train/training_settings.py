"""Settings of a training, and the defaults of every network."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from nppr.core.budget import Budget
from nppr.errors import SpecError, require_at_most, unknown
from nppr.models.zoo import ZOO

Value = str | int | float | bool | None


def _require(holds: bool, name: str, expected: str, value: object, fix: str = "") -> None:
    if not holds:
        raise SpecError(f"`{name.replace('_', '-')}` must be {expected}, got {value}.{fix}")


class Method(StrEnum):
    """Training images: clean, with Gaussian noise, or attacked by PGD."""

    STANDARD = "standard"
    GAUSSIAN = "gaussian"
    PGD = "pgd"


class Optimiser(StrEnum):
    """`sgd` with momentum, or `adam` with decoupled weight decay (AdamW)."""

    SGD = "sgd"
    ADAM = "adam"


MOST = {"epochs": 100_000, "batch_size": 2**20, "threads": 1_024, "seed": 2**63 - 1}
MOST_ATTACK_STEPS = 10_000
"""Upper limits: larger values never finish or overflow the seed."""


@dataclass(frozen=True)
class Adversary:
    """The attack of PGD training: ascent of the cross-entropy from a random point in the budget.

    `step` is relative to the radius. The defaults are PGD-10 as in the paper.
    """

    budget: Budget
    steps: int = 10
    step: float = 0.25

    def __post_init__(self) -> None:
        steps, step = self.steps, self.step
        _require(steps >= 1, "attack-steps", "a whole number >= 1", steps)
        require_at_most("attack-steps", steps, MOST_ATTACK_STEPS)
        _require(0 < step < math.inf, "attack-step", "a number > 0", step, " Example: 0.25")


@dataclass(frozen=True)
class TrainSettings:
    """Settings of a training; `default_training` returns those that suit a network and its data.

    The learning rate rises over the fraction `warm_up` of all steps. `crop` is the largest shift in
    pixels, and `flip` mirrors every second image on average. `momentum` is used by SGD only. With an
    `adversary` the network is trained on attacked images; with `sigma`, on images with Gaussian noise
    of this standard deviation per pixel, clipped to [0, 1]. `threads` is the number of CPU threads
    (None: PyTorch's choice); it changes the order of sums, and so the last digits.
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
    sigma: float | None = None
    stem: str | None = None
    threads: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("crop", 0), ("threads", 1)):
            value = getattr(self, name)
            _require(value is None or value >= least, name, f"a whole number >= {least}", value)
        for name, most in MOST.items():
            require_at_most(name.replace("_", "-"), getattr(self, name), most)
        rate, decay = self.learning_rate, self.weight_decay
        _require(0 < rate < math.inf, "learning_rate", "a number > 0", rate, " Example: 0.1")
        _require(0 <= decay < math.inf, "weight_decay", "a number >= 0", decay, " Example: 5e-4")
        for name in ("momentum", "warm_up", "label_smoothing"):
            fraction = getattr(self, name)
            _require(0 <= fraction < 1, name, "a number >= 0 and < 1", fraction)
        if (sigma := self.sigma) is not None:
            _require(0 < sigma < math.inf, "sigma", "a number > 0", sigma, " Example: 0.25")
            _require(self.adversary is None, "sigma", "given without an adversary", sigma)

    @property
    def method(self) -> Method:
        """`pgd` with an adversary, `gaussian` with noise, else `standard`."""
        if self.adversary is not None:
            return Method.PGD
        return Method.STANDARD if self.sigma is None else Method.GAUSSIAN

    def describe(self) -> dict[str, Value]:
        """Return all settings by the names of their options, as plain values.

        >>> TrainSettings(epochs=3).describe()["epochs"]
        3
        """
        names = [field.name for field in fields(self) if field.name != "adversary"]
        named: dict[str, Value] = {"method": self.method.value}
        named |= {name.replace("_", "-"): getattr(self, name) for name in names}
        named["optimiser"] = self.optimiser.value
        if self.optimiser is not Optimiser.SGD:
            del named["momentum"]
        if self.sigma is None:
            del named["sigma"]
        if (attack := self.adversary) is not None:
            named |= {"norm": attack.budget.norm.name, "eps": attack.budget.radius}
            named |= {"attack-steps": attack.steps, "attack-step": attack.step}
        return named


_SETTINGS = {
    # Larger numbers of threads gain nothing for this network, and one thread rounds the same
    # everywhere.
    "digits-cnn": TrainSettings(
        epochs=40, batch_size=64, optimiser=Optimiser.ADAM, label_smoothing=0.05, threads=1
    ),
}
_RATES = {
    "digits-cnn": {Optimiser.SGD: 0.1, Optimiser.ADAM: 3e-3},
    # Without batch normalisation the usual rates diverge.
    "vgg16": {Optimiser.SGD: 0.01, Optimiser.ADAM: 1e-4},
}
_USUAL_RATES = {Optimiser.SGD: 0.1, Optimiser.ADAM: 1e-3}


def default_training(
    architecture: str, shape: tuple[int, ...], optimiser: Optimiser | None = None
) -> TrainSettings:
    """Return the settings for a network and images of `shape` (C, H, W).

    Images are shifted by up to an eighth of their side; only colour images are mirrored.

    >>> default_training("digits-cnn", (1, 8, 8)).crop
    1
    """
    require_known(architecture)
    settings = _SETTINGS.get(architecture, TrainSettings())
    chosen = optimiser or settings.optimiser
    return replace(
        settings,
        optimiser=chosen,
        learning_rate=_RATES.get(architecture, _USUAL_RATES)[chosen],
        weight_decay=5e-4 if chosen is Optimiser.SGD else 1e-2,
        crop=min(shape[-2:]) // 8,
        flip=shape[0] == 3,
    )


def require_known(architecture: str) -> None:
    """Raise `SpecError` unless the zoo has this network."""
    if architecture not in ZOO:
        raise unknown("model", architecture, ZOO)
