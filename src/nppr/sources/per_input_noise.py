"""Noise that is the worst for every input on its own: the rung `per-input`.

The law of an input is `N(z, min_std^2)` in the latent space of the learned noise it starts from,
up-sampled and squashed into the budget, with the same floor. The mean z is searched for on the input
itself, like an attack, with separate draws; fresh draws measure it. An input for which nothing worse
is found keeps the law of the rung above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from nppr.core.budget import Budget, perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel, Metric
from nppr.core.transformations import spread_points
from nppr.noise.admissible_set import NPPR, AdmissibleSet
from nppr.noise.distribution import NOISE_STREAM
from nppr.noise.family import FLOOR_NOISE
from nppr.noise.rungs import Dependency
from nppr.noise.upsample import Identity, Upsampler
from nppr.sources.base import PASSES_PER_CALL, Guidance, LastFound, Source
from nppr.sources.learned import Learned

INPUTS_AT_ONCE = 64
SEARCHED_NUMBERS = 2**22
"""Inputs that are searched together, and numbers in their images: both at most."""

CHOICE_DRAWS = 4
"""Draws by which the law found and the one above are compared."""

STEP, MOMENTUM = 2.0, 0.5
BOUND, START_BOUND, EDGE = 3.0, 1.0, 0.995
"""Means stay within the first, tanh(3) is 0.995, and start within the second: a step can turn them."""


@dataclass(frozen=True, eq=False)
class PerInputNoise(Source):
    """The worst law found for every input, in at most `calls` forward and backward passes each.

    `parent` is the noise of the rung above. The search steps along the sign of the momentum (in l2
    along the momentum itself) of the gradient of the margin, with a step that falls from 2 to 0, from
    the parent's mean or from 0, whichever starts lower. In the box of a transformation two thirds
    of the calls try means all over it, and steps are short: the margin has many local maxima there.
    With `scores` it takes no gradients but as many forward passes: random changes of fewer and fewer
    coordinates, each kept if it raises the margin of a draw.
    """

    kind = NPPR
    metric = Metric.NPPR
    guidance = Guidance.MORE
    dependency = Dependency.PER_INPUT

    parent: Learned
    calls: int = 20
    scores: bool = False
    _laws: LastFound[tuple[Tensor, Tensor]] = field(
        default_factory=LastFound, init=False, repr=False
    )

    @property
    def budget(self) -> Budget:  # type: ignore[override]
        """That of the rung above."""
        return self.parent.budget

    @property
    def floor(self) -> float:  # type: ignore[override]
        """Rho."""
        return self.parent.floor

    @property
    def name(self) -> str:
        return AdmissibleSet(self.dependency, self.structure, self.floor).name_noise()

    @property
    def row_source(self) -> str:
        return NPPR

    @property
    def cost(self) -> float:
        return 1.25  # a micro-batch at a time; the search is counted by `search_passes`

    @property
    def inputs_at_once(self) -> int:  # type: ignore[override]
        """The same on any machine, so that gradients round the same way."""
        pixels = math.prod(self.parent.distribution.shape)
        return max(1, min(INPUTS_AT_ONCE, SEARCHED_NUMBERS // pixels))

    @property
    def steps(self) -> int:
        """Steps of the search, after its starts and its choice."""
        passes = PASSES_PER_CALL * self.calls - self.starts - 2 * CHOICE_DRAWS
        return passes if self.scores else passes // PASSES_PER_CALL

    @property
    def starts(self) -> int:
        """Means that are tried first: two, or in a box as many as two thirds of the calls pay for."""
        if self.budget.transform is None:
            return 2
        return max(2, 2 * self.calls)

    @property
    def _first_step(self) -> float:
        """In a box a step goes from one of the starts to the next, not across it."""
        if self.budget.transform is None:
            return STEP
        return 2 / math.pow(self.starts, 1 / len(self.budget.transform.box))

    def search_passes(self, inputs: int) -> float:
        """Forward passes of searching for the laws of this many inputs."""
        return float(PASSES_PER_CALL * self.calls * inputs)

    def at(self, budget: Budget) -> PerInputNoise:
        return replace(self, parent=self.parent.at(budget))

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        above = self.parent.perturb(model, x, y, draws)
        if self.floor == 1:
            return above
        means, found = self._laws.get(model, draws, lambda: self._search(model, x, y, draws))
        with torch.no_grad():
            own = self._draw(means, draws)
        return torch.where(found[:, None, None, None, None], own, above)

    @property
    def _upsampler(self) -> Upsampler:
        """That of the rung above, or every pixel by itself if noise there is not a pattern."""
        law = self.parent.distribution
        return law.upsampler if law.is_pattern else Identity(law.shape)

    def _draw(self, means: Tensor, draws: DrawBlock) -> Tensor:
        """Draws of the laws with these means `(B, D)`, `(B, S, C, H, W)`."""
        distribution, rho = self.parent.distribution, self.floor
        noise = draws.normal(NOISE_STREAM, (means.shape[1],))
        latent = means.unsqueeze(1) + distribution.family.min_std * noise
        delta = self.budget.squash(self._upsampler(latent))
        if rho:
            uniform = self.budget.uniform(draws, FLOOR_NOISE, distribution.shape)
            delta = (1 - rho) * delta + rho * uniform
        return delta

    def _search(
        self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock
    ) -> tuple[Tensor, Tensor]:
        """Means `(B, D)`, and for which inputs they are worse than the law of the rung above."""
        own = replace(draws, split=f"{draws.split}/per-input", block=0, size=1, capacity=1)
        means = self._start(model, x, y, own)
        if self.scores:
            means = self._search_by_scores(model, x, y, own, means)
            return means, self._is_worse(model, x, y, means, own)
        momentum, size = torch.zeros_like(means), math.sqrt(means.shape[1])
        l2, keeps_best = self.budget.norm.name == "l2", self.budget.transform is not None
        best, largest = means, means.new_full((len(x),), -torch.inf)
        for number in range(self.steps):
            means.requires_grad_(True)
            with torch.enable_grad():
                delta = self._draw(means, replace(own, block=number + 1))[:, 0]
            slope, logits = self.budget.gradient(
                model,
                lambda logits: -margin(*model.to_classes(logits, y)),
                x,
                delta.detach(),
            )
            if keeps_best:
                margins = margin(*model.to_classes(logits, y))
                best = torch.where((margins > largest)[:, None], means.detach(), best)
                largest = torch.maximum(margins, largest)
            (slope,) = torch.autograd.grad(delta, means, slope)
            slope = slope / slope.abs().mean(1, keepdim=True).clamp_min(1e-30)
            momentum = MOMENTUM * momentum + slope
            length = momentum.norm(dim=1, keepdim=True).clamp_min(1e-30)
            way = momentum * (size / length) if l2 else momentum.sign()
            means = means.detach() - self._first_step * (1 - number / self.steps) * way
            if l2:
                means *= (BOUND * size / means.norm(dim=1, keepdim=True)).clamp_max(1.0)
            else:
                means = means.clamp(-BOUND, BOUND)
        means = best if keeps_best else means
        return means, self._is_worse(model, x, y, means, own)

    def _search_by_scores(
        self, model: FrozenModel, x: Tensor, y: Tensor, own: DrawBlock, means: Tensor
    ) -> Tensor:
        """Means `(B, D)`: a random part of the coordinates is drawn again, and kept if it is worse."""
        with torch.no_grad():
            moved = perturbed(x, self._draw(means, own)[:, 0], self.budget)
            largest = margin(*model.to_classes(model.logits(moved), y))
            for number in range(self.steps - 1):
                block = replace(own, block=number + 1)
                part = max(1 / means.shape[1], 0.5 * (1 - number / self.steps))
                changed = block.uniform("scores/part", (means.shape[1],))[:, 0] < part
                drawn = EDGE * (2 * block.uniform("scores", (means.shape[1],))[:, 0] - 1)
                if self.budget.transform is None:
                    drawn = EDGE * drawn.sign()  # the worst patterns are at the edge of a ball
                tried = torch.where(changed, drawn.atanh(), means)
                moved = perturbed(x, self._draw(tried, block)[:, 0], self.budget)
                margins = margin(*model.to_classes(model.logits(moved), y))
                better = margins > largest
                means = torch.where(better[:, None], tried, means)
                largest = torch.maximum(margins, largest)
        return means

    def _start(self, model: FrozenModel, x: Tensor, y: Tensor, own: DrawBlock) -> Tensor:
        """The mean of the rung above, 0 or, in a box, another point, by the margin of one draw each."""
        if self.parent.distribution.is_pattern:
            above = self.parent.centre(model, x, y, own)
        else:
            drawn = self.parent.perturb(model, x, y, own).flatten(1)
            above = drawn / drawn.square().mean(1, keepdim=True).sqrt().clamp_min(1e-12)
        if self.budget.transform is None:
            above = above.clamp(-START_BOUND, START_BOUND)
        points = above.new_zeros(1, above.shape[1])
        if self.budget.transform is not None:
            points = latent_points(self.starts - 1, above.shape[1]).to(above)
        best, largest = above.clone(), above.new_full((len(x),), -torch.inf)
        with torch.no_grad():
            for each in (above, *(point.expand_as(above) for point in points)):
                moved = perturbed(x, self._draw(each, own)[:, 0], self.budget)
                margins = margin(*model.to_classes(model.logits(moved), y))
                better = margins > largest
                best, largest = (
                    torch.where(better[:, None], each, best),
                    torch.maximum(margins, largest),
                )
        return best

    def _is_worse(
        self, model: FrozenModel, x: Tensor, y: Tensor, means: Tensor, own: DrawBlock
    ) -> Tensor:
        """Fewer correct draws than under the rung above, or as many and a larger margin."""
        fresh = replace(own, block=self.steps + 1, size=CHOICE_DRAWS, capacity=CHOICE_DRAWS)
        scores = []
        with torch.no_grad():
            for delta in (self.parent.perturb(model, x, y, fresh), self._draw(means, fresh)):
                images = perturbed(x.unsqueeze(1), delta, self.budget).flatten(0, 1)
                labels = y.repeat_interleave(CHOICE_DRAWS)
                margins = margin(*model.to_classes(model.logits(images), labels))
                margins = margins.view(len(x), CHOICE_DRAWS)
                scores.append(((margins <= 0).sum(1), margins.mean(1)))
        (correct, before), (fewer, after) = scores
        return (fewer < correct) | ((fewer == correct) & (after > before))


def latent_points(count: int, dimensions: int) -> Tensor:
    """Means `(count, P)` whose squashed values are spread over the box."""
    return spread_points(count, dimensions).clamp(-EDGE, EDGE).atanh()
