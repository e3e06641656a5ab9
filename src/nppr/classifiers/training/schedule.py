"""The optimiser and its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from nppr.classifiers.training.settings import Optimiser, TrainSettings

__all__ = ["build_optimiser", "rate", "set_rate"]


def build_optimiser(
    parameters: Iterable[nn.Parameter], settings: TrainSettings
) -> torch.optim.Optimizer:
    """The optimiser of the settings."""
    match settings.optimiser:
        case Optimiser.SGD:
            return torch.optim.SGD(
                parameters,
                lr=settings.learning_rate,
                momentum=settings.momentum,
                weight_decay=settings.weight_decay,
            )
        case Optimiser.ADAM:
            return torch.optim.AdamW(
                parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
            )


def rate(done: float, warm_up: float) -> float:
    """Share of the learning rate when a share `done` of the training is over.

    Linear from 0 to 1 over the warm-up, then a cosine down to 0.

    >>> [rate(done, warm_up=0.2) for done in (0.0, 0.1, 0.2, 1.0)]
    [0.0, 0.5, 1.0, 0.0]
    """
    if done < warm_up:
        return done / warm_up
    return 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))


def set_rate(
    optimiser: torch.optim.Optimizer, settings: TrainSettings, step: int, steps: int
) -> None:
    """Set the learning rate of step 0..steps-1, taken at its middle: neither end is wasted."""
    share = rate((step + 0.5) / steps, settings.warm_up)
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * share
