"""What an update of the weights is made of: the attack of PGD training, optimiser, learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.budget import perturbed
from nppr.classifiers.classifier import Classifier, frozen
from nppr.classifiers.training.training_settings import Adversary, Optimiser, TrainSettings
from nppr.random_draws import DrawBlock
from nppr.tally import IntArray


def adversarial(
    classifier: Classifier, x: Tensor, y: Tensor, adversary: Adversary, draws: DrawBlock
) -> Tensor:
    """`argmax CE(h(x + delta), y)` over the budget, by projected gradient ascent, `(B, C, H, W)`.

    The start is uniform in the ball. Every step goes along the norm's steepest direction, then back
    into the ball and to where `x + delta` is an image. The attack sees the network in eval mode, so
    that it fools the network as it will be used and leaves the running statistics of batch
    normalisation alone; the weights are then updated in train mode.

    Reference: A. Madry et al., Towards Deep Learning Models Resistant to Adversarial Attacks, 2018.
    """
    budget = adversary.budget
    delta = budget.uniform(draws, "pgd-training", tuple(x.shape[1:]))[:, 0]
    point = perturbed(x, delta)
    with frozen(classifier) as model:
        for _ in range(adversary.steps):
            gradient, _ = model.gradient(
                lambda logits: F.cross_entropy(logits, y, reduction="none"), point
            )
            ascent = adversary.step * budget.radius * budget.norm.steepest(gradient)
            point = perturbed(x, budget.clip(point - x + ascent))
    return point


def start_draws(seed: int, epoch: int, positions: IntArray, x: Tensor) -> DrawBlock:
    """The random numbers of a batch: of (seed, epoch, position of the image) only."""
    return DrawBlock(seed, "train", tuple(positions.tolist()), epoch, 1, x.device, capacity=1)


def build_optimiser(
    parameters: Iterable[nn.Parameter], settings: TrainSettings
) -> torch.optim.Optimizer:
    """The optimiser of the settings."""
    rate, decay = settings.learning_rate, settings.weight_decay
    match settings.optimiser:
        case Optimiser.SGD:
            return torch.optim.SGD(
                parameters, lr=rate, momentum=settings.momentum, weight_decay=decay
            )
        case Optimiser.ADAM:
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)


def relative_rate(done: float, warm_up: float) -> float:
    """Share of the learning rate when a share `done` of the training is over.

    Linear from 0 to 1 over the warm-up, then a cosine down to 0.

    >>> [relative_rate(done, warm_up=0.2) for done in (0.0, 0.1, 0.2, 1.0)]
    [0.0, 0.5, 1.0, 0.0]
    """
    if done < warm_up:
        return done / warm_up
    return 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))


def set_rate(
    optimiser: torch.optim.Optimizer, settings: TrainSettings, step: int, steps: int
) -> None:
    """Set the learning rate of step 0..steps-1, taken at its middle: neither end is wasted."""
    share = relative_rate((step + 0.5) / steps, settings.warm_up)
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * share
