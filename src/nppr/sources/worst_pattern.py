"""The worst fixed pattern of a dictionary, found by forward passes alone.

Waves and checkerboards of all frequencies, phases and colours (`noise/dictionary.py`) are scored on a
few inputs of the fit split. The worst of them are scored on more inputs, in three rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from nppr.core.budget import Budget, perturbed
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Fit, FrozenModel, IntArray, Metric, Progress
from nppr.data import stratified_order
from nppr.errors import NoFitDataError
from nppr.noise.dictionary import PHASES, list_patterns
from nppr.noise.rungs import Dependency
from nppr.sources.base import Source
from nppr.sources.universal import SharedPattern

if TYPE_CHECKING:
    from torch import Tensor

    from nppr.data import Split
    from nppr.models import Classifier

ROUNDS = ((8, 48), (64, 24), (384, 1))
"""Inputs of each round, and the patterns that it keeps in all and in each class."""

TYPICAL = 1_300
"""Patterns of the dictionary for colour images of 32 pixels, for estimates of time."""

KEPT_OF_CLASS = 2
AT_ONCE = 64
"""Images that go through the classifier together."""


@dataclass(frozen=True, eq=False)
class PatternScan:
    """The worst patterns `(G, C, H, W)` and where they come from, with scores on every input `(G, N)`.

    A score is the probability that the classifier gives the right answer, plus 1 if it answers so.
    """

    known: Sequence[Drawable]
    patterns: Tensor
    scores: Tensor
    labels: IntArray
    calls: int

    def worst(self, count: int) -> Tensor:
        """Return the `count` patterns with the lowest mean score, the lowest first."""
        return self.patterns[self.scores.mean(1).argsort(stable=True)[:count]]

    def worst_of_class(self, label: int) -> Tensor | None:
        """Return the pattern with the lowest mean score in a class, None without inputs of it."""
        own = torch.from_numpy(np.flatnonzero(self.labels == label)).to(self.scores.device)
        return self.patterns[self.scores[:, own].mean(1).argmin()] if len(own) else None


class Drawable(Protocol):
    """A pattern that is drawn when it is needed."""

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Return its values `(C, H, W)`, of any size."""

    @property
    def phases(self) -> Sequence[Drawable]:
        """The same pattern at every phase, or itself alone."""


Batch = Callable[[IntArray], tuple["Tensor", "Tensor"]]


def scan_patterns(
    model: FrozenModel,
    split: Split[Fit],
    batch: Batch,
    budget: Budget,
    *,
    seed: int = 0,
    known: Sequence[Drawable] = (),
    quantise: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PatternScan:
    """Score patterns, by default the dictionary, on inputs in rounds.

    `batch` gives the images and labels at places of the split, in the order of the classes' shares.
    """
    order = stratified_order(split.labels, split.indices, seed)[: ROUNDS[-1][0]]
    labels = split.labels[order]
    x, _ = batch(order[:1])
    shape = tuple(x.shape[1:])
    known = known or list_patterns(shape)
    begun, done = model.calls, 0
    scores = x.new_zeros(0)
    places = np.arange(0)
    for number, (inputs, kept) in enumerate(ROUNDS):
        places = np.arange(min(inputs, len(order)))
        images, answers = batch(order[places])
        total = len(known) * len(places)
        rows = []
        for start in range(0, len(known), max(1, AT_ONCE // len(places))):
            some = known[start : start + max(1, AT_ONCE // len(places))]
            rows.append(_score(model, images, answers, some, budget, quantise))
            if progress:
                done += len(some) * len(places)
                progress(done, done + total - (start + len(some)) * len(places))
        scores = torch.cat(rows)
        if number == len(ROUNDS) - 1:
            break
        best = scores.mean(1).argsort(stable=True)[:kept].tolist()
        if number:  # with a few inputs of every class, those that are worst for one of them
            for label in np.unique(labels[places]):
                own = torch.from_numpy(np.flatnonzero(labels[places] == label)).to(scores.device)
                best += scores[:, own].mean(1).argsort(stable=True)[:KEPT_OF_CLASS].tolist()
        chosen = [known[at] for at in dict.fromkeys(best)]
        known = chosen if number else [one for each in chosen for one in each.phases]
    drawn = torch.stack([each.draw(shape).to(x) for each in known])
    return PatternScan(known, drawn, scores, labels[places], model.calls - begun)


@torch.no_grad()
def _score(
    model: FrozenModel,
    images: Tensor,
    answers: Tensor,
    patterns: Sequence[Drawable],
    budget: Budget,
    quantise: bool,
) -> Tensor:
    """Return the scores `(G, N)` of some patterns."""
    shape = tuple(images.shape[1:])
    drawn = torch.stack([each.draw(shape).to(images) for each in patterns])
    delta = budget.radius * budget.norm.steepest(drawn)
    moved = perturbed(images[None], delta[:, None], budget, quantise=quantise).flatten(0, 1)
    logits = torch.cat([model.logits(piece) for piece in moved.split(AT_ONCE)])
    logits, wanted = model.to_classes(logits, answers.repeat(len(patterns)))
    right = logits.softmax(1).gather(1, wanted[:, None])[:, 0] + (logits.argmax(1) == wanted)
    return right.view(len(patterns), -1)


@dataclass(frozen=True)
class Patterns(Source, kind="patterns"):
    """One pattern for all inputs: the worst of a dictionary of waves and checkerboards."""

    metric = Metric.AR
    sees = Dependency.INDEPENDENT
    transforms = False
    needs_fit_split = True
    can_be_redrawn = False
    fixed_draws = 1

    budget: Budget

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Refuse: it must be fitted first."""
        raise NoFitDataError(
            "`patterns` must be fitted before it is measured."
            " Example: Patterns(budget).fitted_on(classifier, data.fit)"
        )

    def fit_passes(self, inputs: int) -> float:
        first, second, third = ROUNDS
        return float(TYPICAL * first[0] + PHASES * first[1] * second[0] + 2 * second[1] * third[0])

    def fitted_on(
        self,
        classifier: Classifier,
        split: Split[Fit],
        *,
        seed: int = 0,
        device: torch.device | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> PatternsOn:
        """Return the source for a classifier; it is fitted when it is first asked for a pattern."""
        if not len(split):
            raise NoFitDataError("the fit split must hold inputs for `patterns`, got none.")
        return PatternsOn(self.budget, self, classifier, split, seed, device, progress)


@dataclass(frozen=True, eq=False)
class PatternsOn(SharedPattern):
    """The worst pattern for one classifier."""

    @cached_property
    def delta(self) -> Tensor:
        """The perturbation `(C, H, W)`."""
        from nppr.models import frozen  # not before PyTorch is needed

        def batch(places: IntArray) -> tuple[Tensor, Tensor]:
            x, y = self.split.batch(places)
            return x.to(self.device), y.to(self.device)

        def show(done: int, total: int) -> None:
            if self.progress:
                self.progress(Progress(f"fit {self.name}", done, total, 0))

        with frozen(self.classifier) as model:
            scan = scan_patterns(
                model, self.split, batch, self.budget, seed=self.seed, progress=show
            )
        return self.budget.radius * self.budget.norm.steepest(scan.worst(1))[0]
