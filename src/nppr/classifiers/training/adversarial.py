"""The inner maximisation of adversarial training."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from nppr.budget import perturbed
from nppr.classifiers.training.settings import Adversary
from nppr.classifiers.wrap import Classifier, frozen
from nppr.draws import DrawBlock
from nppr.types import IntArray

__all__ = ["adversarial", "start_draws"]


def adversarial(
    classifier: Classifier, x: Tensor, y: Tensor, adversary: Adversary, draws: DrawBlock
) -> Tensor:
    """`argmax CE(h(x + delta), y)` over the budget, by projected gradient ascent, `(B, C, H, W)`.

    The start is uniform in the ball. Every step goes along the norm's steepest direction, then back
    into the ball and to where `x + delta` is an image. The attack meets the network in eval mode, so
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
    return DrawBlock(
        seed=seed,
        split="train",
        indices=tuple(positions.tolist()),
        block=epoch,
        size=1,
        device=x.device,
        capacity=1,
    )
