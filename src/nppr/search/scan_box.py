"""Starts of a search in the box of a transformation: the worst of many parameters on fit inputs.

In few dimensions the value has many local minima and few places to look: a scan of the box finds the
right one, and gradients go on from there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nppr.core.budget import Budget, perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Fit, IntArray
from nppr.models import PreparedClassifier
from nppr.noise.distribution import Distribution
from nppr.noise.family import FLOOR_NOISE, Rule
from nppr.search.selection import CleanInputs
from nppr.sources.per_input_noise import latent_points

POINTS_PER_DIMENSION = 65
MOST_POINTS = 257
INPUTS = 256
"""Parameters and inputs of a scan, at most."""

MARGIN_WEIGHT = 1e-6
"""Weight of the margin in a score: it decides where as many inputs are correct."""


@dataclass(frozen=True, eq=False)
class BoxScan:
    """Points of the box as latent means `(G, P)`, and the score of each on every input `(G, N)`.

    A score is 1 for a correct answer and 0 for a wrong one, and a little less the larger the margin.
    """

    means: Tensor
    scores: Tensor
    labels: IntArray

    @property
    def calls(self) -> int:
        """Forward passes that it took."""
        return self.scores.numel()

    def worst(self, count: int) -> Tensor:
        """The `count` points with the lowest mean score, the lowest first."""
        return self.means[self.scores.mean(1).argsort(stable=True)[:count]]

    def worst_of_class(self, label: int) -> Tensor | None:
        """The point with the lowest mean score in a class, None where it has no input."""
        own = torch.from_numpy(np.flatnonzero(self.labels == label))
        return self.means[self.scores[:, own].mean(1).argmin()] if len(own) else None

    @torch.no_grad()
    def place(self, made: Distribution) -> Distribution:
        """Move the means of a distribution to the worst points; a copy of the law that this gives.

        Noise that sees the label, with a component for every class, gets the worst point of each.
        """
        means = made.mixture.means
        if made.family.dependency.sees_label and len(means) >= made.classes:
            for label in range(made.classes):
                worst = self.worst_of_class(label)
                if worst is not None:
                    means[label].copy_(worst)
            law = made.sharpened(Rule.LARGEST)
        else:
            worst = self.worst(len(means))
            means[: len(worst)].copy_(worst)
            law = made.sharpened(Rule.CHOSEN, torch.tensor(0))
        law.narrow()
        return law


def scan_box(
    classifier: PreparedClassifier,
    inputs: CleanInputs[Fit],
    budget: Budget,
    *,
    floor: float,
    most_calls: int,
    seed: int,
) -> BoxScan:
    """Classify some inputs at points all over the box, in at most `most_calls` forward passes.

    With a floor every point is mixed with uniform parameters, as the noise is.
    """
    assert budget.transform is not None
    shape = (len(budget.transform.box), 1, 1)
    count = min(MOST_POINTS, POINTS_PER_DIMENSION * shape[0], max(2, most_calls // 64))
    means = latent_points(count, shape[0])
    some = inputs.limit(max(1, min(INPUTS, most_calls // count)), seed)
    device = classifier.device
    rows: list[Tensor] = []
    with classifier.frozen() as models, torch.inference_mode():
        everything = np.arange(len(some))
        size = classifier.micro_batch
        for positions in np.split(everything, everything[size::size]):
            x, y = some.batch(positions, device)
            indices = tuple(some.split.indices[positions].tolist())
            found = []
            for number in range(count):
                delta = budget.squash(means[number].view(1, *shape).to(x)).expand(len(x), *shape)
                if floor:
                    draws = DrawBlock(seed, "fit/scan", indices, number, 1, device, 1)
                    uniform = budget.uniform(draws, FLOOR_NOISE, shape)[:, 0]
                    delta = (1 - floor) * delta + floor * uniform
                logits = models.fast.logits(
                    perturbed(x, delta, budget, quantise=classifier.quantise)
                )
                logits, labels = models.fast.to_classes(logits, y)
                correct = (logits.argmax(1) == labels).double()
                found.append(
                    correct - MARGIN_WEIGHT * margin(logits, labels).double().clamp(-1e3, 1e3)
                )
            rows.append(torch.stack(found))
    return BoxScan(means.to(device), torch.cat(rows, 1), some.split.labels)
