"""Starts of a search: the worst of many known points on fit inputs.

In the box of a transformation the value has many local minima and few places to look: a scan of the box
finds the right one. Patterns of a dictionary and draws of stationary noise are such points for added
noise. Gradients go on from there.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from nppr.core.budget import Budget, perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Fit, IntArray
from nppr.models import PreparedClassifier
from nppr.noise.dictionary import Pattern, list_patterns
from nppr.noise.distribution import Distribution
from nppr.noise.family import FLOOR_NOISE, Rule
from nppr.noise.upsample import Stationary
from nppr.search.selection import CleanInputs
from nppr.sources.per_input_noise import latent_points
from nppr.sources.worst_pattern import Drawable, PatternScan, scan_patterns

POINTS_PER_DIMENSION = 65
MOST_POINTS = 257
INPUTS = 256
"""Parameters and inputs of a scan, at most."""

DRAWS = 64
"""Draws of stationary noise that are tried as fixed patterns."""

START_GAIN, EDGE_GAIN = 3.0, 10.0
"""Sizes of the filter of a band at the start of a fit, and at the edge of the budget."""

EDGE_MEAN = 3.0
"""Latent means of a pattern: tanh is 0.995 there."""

MARGIN_WEIGHT = 1e-6
"""Weight of the margin in a score: it decides where as many inputs are correct."""


@dataclass(frozen=True, eq=False)
class KnownPoints:
    """Points as latent means `(G, D)`, and the score of each on every input `(G, N)`: low is worse.

    `calls` counts the forward passes that the scores took.
    """

    means: Tensor
    scores: Tensor
    labels: IntArray
    calls: int

    def worst(self, count: int) -> Tensor:
        """The `count` points with the lowest mean score, the lowest first."""
        return self.means[self.scores.mean(1).argsort(stable=True)[:count]]

    def worst_of_class(self, label: int) -> Tensor | None:
        """The point with the lowest mean score in a class, None where it has no input."""
        own = torch.from_numpy(np.flatnonzero(self.labels == label)).to(self.scores.device)
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
) -> KnownPoints:
    """Classify some inputs at points all over the box, in at most `most_calls` forward passes.

    A score is 1 for a correct answer and 0 for a wrong one, and a little less the larger the margin.
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
    scores = torch.cat(rows, 1)
    return KnownPoints(means.to(device), scores, some.split.labels, scores.numel())


@dataclass(frozen=True, eq=False)
class FixedDraw:
    """A draw of noise as a pattern."""

    values: Tensor

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Return its values."""
        return self.values

    @property
    def phases(self) -> tuple[FixedDraw]:
        """Return itself: a draw has no other phase."""
        return (self,)


@dataclass(frozen=True, eq=False)
class Band:
    """A draw of stationary noise whose filter is a wave of the dictionary."""

    wave: Pattern
    noise: Distribution
    draws: DrawBlock
    budget: Budget

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Return the draw."""
        self.tune(self.noise, START_GAIN)
        label = torch.zeros(1, dtype=torch.int64, device=self.draws.device)
        with torch.no_grad():
            drawn: Tensor = self.noise.exact(self.noise.sees(label), self.draws, self.budget)[0, 0]
        return drawn

    @property
    def phases(self) -> tuple[Band]:
        """Return itself: noise of a band has all phases."""
        return (self,)

    def tune(self, noise: Distribution, gain: float) -> None:
        """Set the filter of stationary noise to the wave."""
        assert isinstance(noise.upsampler, Stationary)
        noise.upsampler.tune(self.wave, gain)


def scan_dictionary(
    classifier: PreparedClassifier,
    inputs: CleanInputs[Fit],
    budget: Budget,
    *,
    stationary: Distribution | None,
    seed: int,
) -> KnownPoints:
    """Score the dictionary of patterns, and draws of stationary noise as fixed patterns."""
    device, known = classifier.device, []
    if stationary is not None:
        draws = DrawBlock(seed, "fit/starts", (0,), 0, DRAWS, device, DRAWS)
        label = torch.zeros(1, dtype=torch.int64, device=device)
        with torch.no_grad():
            found = stationary.exact(stationary.sees(label), draws, budget)[0]
        known = [FixedDraw(each) for each in found]
    shape = stationary.shape if stationary else inputs.batch(np.arange(1), device)[0].shape[1:]
    scan = _scan(classifier, inputs, budget, [*list_patterns(tuple(shape)), *known], seed)
    unit = budget.norm.steepest(scan.patterns)
    unit = unit / unit.flatten(1).square().mean(1).sqrt()[:, None, None, None]
    return KnownPoints(EDGE_MEAN * unit.flatten(1), scan.scores, scan.labels, scan.calls)


def scan_bands(
    classifier: PreparedClassifier,
    inputs: CleanInputs[Fit],
    budget: Budget,
    noise: Distribution,
    *,
    seed: int,
) -> tuple[Band, int]:
    """Return the worst band of stationary noise, by a draw of each, and the forward passes."""
    draws = DrawBlock(seed, "fit/bands", (0,), 0, 1, classifier.device, 1)
    trial = copy.deepcopy(noise)
    bands = [Band(wave, trial, draws, budget) for wave in list_patterns(noise.shape)]
    scan = _scan(classifier, inputs, budget, bands, seed)
    worst = scan.known[int(scan.scores.mean(1).argmin())]
    assert isinstance(worst, Band)
    return worst, scan.calls


def _scan(
    classifier: PreparedClassifier,
    inputs: CleanInputs[Fit],
    budget: Budget,
    known: Sequence[Drawable],
    seed: int,
) -> PatternScan:
    with classifier.frozen() as models:
        return scan_patterns(
            models.fast,
            inputs.split,
            partial(inputs.batch, device=classifier.device),
            budget,
            seed=seed,
            known=known,
            quantise=classifier.quantise,
        )
