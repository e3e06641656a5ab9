"""Gaussian noise with an unknown offset: the two ends of a bracket.

The law of the noise is `N(m, sigma^2)` per pixel with any offset m of Euclidean length at most R, which
may depend on the input. The model classifies `x + noise`, clipped to [0, 1] as always. Clipping is a
fixed map after the noise, so that everything below still holds.

at least   the draws of `N(0, sigma^2)`, read as a bound for all offsets (`noise_sets.Offset`)
at most    the worst offset found for each input, like an attack, with separate draws; fresh
           draws measure it. An input for which nothing worse is found keeps the offset 0.

The error is divided over the ends, so that all brackets of a claim hold together.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from nppr.core.budget import Budget
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Estimate, Evaluate, FrozenModel, Metric, Tally
from nppr.errors import SpecError, require_at_most
from nppr.source_names import FEWEST_OFFSET_CALLS, OFFSET_CALLS, Option
from nppr.sources.base import PASSES_PER_CALL, Guidance, LastFound, Source
from nppr.statistics.noise_sets import Offset

if TYPE_CHECKING:
    from torch import Tensor

MOST_CALLS = 10**5
"""Forward and backward passes per input of a search, at most."""

STEP_DRAWS = 2
GRADIENT_DRAWS = 8
"""Draws over which a gradient is averaged, and by which the offset found is compared with 0."""

STEP, MOMENTUM = 0.5, 0.75
"""The first step, relative to the radius; steps fall to 0."""


def make_offset_sources(
    sigma: float, radii: Sequence[float | str], calls: int = OFFSET_CALLS
) -> list[OffsetNoise | OffsetSearch]:
    """The sources of brackets at these radii, for `nppr.assess(sources=...)` with an l2 budget."""
    budgets = tuple(Budget.l2(radius) for radius in radii)
    lengths = tuple(budget.radius for budget in budgets)
    searches = [OffsetSearch(sigma, each, calls, len(budgets)) for each in lengths]
    return [OffsetNoise(sigma, lengths), *searches]


@dataclass(frozen=True)
class _Gaussian(Source, ABC):
    """What both ends share: the standard deviation per pixel, and that no ball contains the noise."""

    kind = "gaussian-offset"
    has_budget = False
    budget = None

    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise SpecError(f"`sigma` must be a number > 0, got {self.sigma}. Example: 0.25")

    @property
    def row_source(self) -> str:
        return f"{self.kind}:sigma={self.sigma:.15g}"

    @property
    def reference(self) -> str:
        """The noise without an offset, in words."""
        return f"N(0, {self.sigma:.15g}^2)"

    def noise(self, draws: DrawBlock, shape: tuple[int, ...]) -> Tensor:
        """Draws without an offset, `(B, S, *shape)`."""
        return draws.normal(self.kind, shape).mul_(self.sigma)


@dataclass(frozen=True)
class OffsetNoise(_Gaussian):
    """The noise without an offset: its tally bounds all offsets of these lengths from below."""

    metric = Metric.BOUND

    radii: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        sets = tuple(Offset(radius / self.sigma) for radius in self.radii)
        object.__setattr__(self, "noise_sets", sets)

    @property
    def name(self) -> str:
        return self.row_source

    def options(self, shape: Sequence[int]) -> dict[str, Option]:
        return {"sigma": self.sigma, "radii": "+".join(f"{each:.15g}" for each in self.radii)}

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        return self.noise(draws, tuple(x.shape[1:]))

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """The bounds, with half of the error for all of them, and PR of the noise itself."""
        from nppr.statistics.estimates import estimate_probabilistic
        from nppr.statistics.lower_bounds import (  # not before PyTorch is needed
            PerInputDraws,
            estimate_bounds_jointly,
        )

        sure = (1 + confidence) / 2
        rows = [
            replace(row, confidence=confidence, reference=self.reference)
            for row in estimate_bounds_jointly(PerInputDraws(tally, seed), self.noise_sets, sure)
        ]
        known = estimate_probabilistic(tally, confidence, Metric.PR, seed)
        return [*rows, *(row for row in known if row.method in ("betting", "hoeffding"))]


@dataclass(frozen=True, eq=False)
class OffsetSearch(_Gaussian):
    """The worst offset found for every input, in at most `calls` forward and backward passes each.

    The search steps along the momentum of the normalised gradient of the margin, averaged over a few
    draws, with a step that falls from R / 2 to 0, and stays within the radius. `brackets` is how many
    brackets are to hold together.
    """

    metric = Metric.NPPR
    guidance = Guidance.MORE
    cost = 1.25  # a micro-batch at a time; the search is counted by `search_passes`
    inputs_at_once = 16  # the same on any machine, so that gradients round the same way

    radius: float
    calls: int = OFFSET_CALLS
    brackets: int = 1
    _offsets: LastFound[Tensor] = field(default_factory=LastFound, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.calls < FEWEST_OFFSET_CALLS:
            raise SpecError(
                f"`search-calls` must be a whole number >= {FEWEST_OFFSET_CALLS}, got {self.calls}."
                f" Example: {OFFSET_CALLS}"
            )
        require_at_most("search-calls", self.calls, MOST_CALLS)

    @property
    def name(self) -> str:
        return f"{self.row_source}:{self.noise_set.label}"

    @property
    def noise_set(self) -> Offset:
        """All offsets of at most this length."""
        return Offset(self.radius / self.sigma)

    @property
    def steps(self) -> int:
        """Steps of the search, beside its choice."""
        passes = PASSES_PER_CALL * self.calls - 2 * GRADIENT_DRAWS
        return passes // (PASSES_PER_CALL * STEP_DRAWS)

    def search_passes(self, inputs: int) -> float:
        """Forward passes of searching for the offsets of this many inputs, at most."""
        return float(PASSES_PER_CALL * self.calls * inputs)

    def options(self, shape: Sequence[int]) -> dict[str, Option]:
        return {"sigma": self.sigma, "radius": self.radius, "calls": self.calls}

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        found = self._offsets.get(model, draws, lambda: self.offsets(model, x, y, draws))
        return self.noise(draws, tuple(x.shape[1:])).add_(found.unsqueeze(1))

    def offsets(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The worst offsets found, `(B, C, H, W)`; 0 where none is worse than that."""
        budget, split = Budget.l2(self.radius), f"{draws.split}/offset-search"
        own = replace(draws, split=split, block=0, size=STEP_DRAWS, capacity=STEP_DRAWS)
        labels = y.repeat_interleave(STEP_DRAWS)
        found, momentum = torch.zeros_like(x), torch.zeros_like(x)
        for number in range(self.steps):
            images = self._images(x, found, replace(own, block=number))
            slope, _ = model.gradient(
                lambda logits: margin(*model.to_classes(logits, labels)), images
            )
            mean = slope.view(len(x), STEP_DRAWS, *x.shape[1:]).mean(1)
            momentum = MOMENTUM * momentum + budget.norm.steepest(mean)
            size = STEP * self.radius * (1 - number / self.steps)
            found = budget.clip(found + size * budget.norm.steepest(momentum))
        worse = self._is_worse(model, x, y, found, replace(own, block=self.steps))
        return found * worse.view(-1, 1, 1, 1)

    def _images(self, x: Tensor, offset: Tensor, draws: DrawBlock) -> Tensor:
        """Return the images to classify under these offsets, one per draw, `(B S, C, H, W)`."""
        noise = self.noise(draws, tuple(x.shape[1:]))
        return (noise + (x + offset).unsqueeze(1)).clamp_(0, 1).flatten(0, 1)

    def _is_worse(
        self, model: FrozenModel, x: Tensor, y: Tensor, found: Tensor, draws: DrawBlock
    ) -> Tensor:
        """Fewer correct draws than without an offset, or as many and a larger margin, `(B,)`."""
        fresh = replace(draws, size=GRADIENT_DRAWS, capacity=GRADIENT_DRAWS)
        labels, scores = y.repeat_interleave(GRADIENT_DRAWS), []
        with torch.no_grad():
            for offset in (torch.zeros_like(found), found):
                logits = model.logits(self._images(x, offset, fresh))
                margins = margin(*model.to_classes(logits, labels)).view(len(x), GRADIENT_DRAWS)
                scores.append(((margins <= 0).sum(1), margins.mean(1)))
        (correct, before), (fewer, after) = scores
        return (fewer < correct) | ((fewer == correct) & (after > before))

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """The upper ends, with half of the error for all brackets: population, then test set."""
        from nppr.statistics.bracket_ends import estimate_upper_ends  # not before PyTorch is needed

        rows = estimate_upper_ends(tally, confidence, self.brackets, seed)
        facts = self.noise_set.facts
        return [replace(row, reference=self.reference, sees_input=True, **facts) for row in rows]
