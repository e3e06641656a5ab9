"""A distribution of perturbations: `delta = (1 - rho) s g_B(U(e)) + rho u`.

The latent e comes from the mixture, U is the up-sampler, g_B squashes into the budget, s in (0, 1] is a
learned scale and u is uniform in the budget. rho = 0 is the paper's set, rho = 1 is PR under Uniform.
Noise comes from a `DrawBlock`, in one stream for all distributions, so that differences are paired.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.noise.covariance import make_covariance
from nppr.noise.family import COLD, FLOOR_NOISE, Family, Rule, Temperatures
from nppr.noise.mixture import Context, Given, Mixture
from nppr.noise.upsample import make_upsampler

NOISE_STREAM = "learned"
COMPONENT_STREAM = "learned/component"
DIRECTION_STREAM = "learned/direction"

SHARED_STEP = 8
"""Inputs that share a step in the parameters, in a search without gradients."""

FULL_SCALE = -8.0
"""Start of the scale: s = exp(-softplus(-8)) = 0.9997."""


NARROW = -12.0
"""Raw number of the least standard deviation: softplus(-12) = 6e-6 above it."""


class Distribution(nn.Module):
    """Perturbations of images of `shape` (C, H, W).

    `rule` is how a component is chosen: by the weights, the largest weight in each context, or the one
    `chosen` for each class (one for all classes where the noise does not see the label).
    """

    chosen: Tensor

    def __init__(
        self, family: Family, shape: tuple[int, int, int], classes: int, features: int = 0
    ) -> None:
        super().__init__()
        self.family = family
        self.shape = shape
        self.classes = classes
        self.features = features if family.dependency.sees_input else 0
        self.rule = Rule.WEIGHTS
        self.upsampler = make_upsampler(family, shape)
        covariance = make_covariance(family.covariance, self.upsampler.latent_dim, family.min_std)
        self.mixture = Mixture(family, covariance, classes, self.features)
        with torch.no_grad():
            self.mixture.means.copy_(self.upsampler.start_means(self.mixture.means))
        if family.scaled:
            self.raw_scale = nn.Parameter(torch.tensor(FULL_SCALE))
        self.register_buffer("chosen", torch.zeros(classes, dtype=torch.int64))

    @property
    def scale(self) -> Tensor:
        """The scale s in (0, 1]."""
        if self.family.scaled:
            return torch.exp(-F.softplus(self.raw_scale))
        return self.chosen.new_ones((), dtype=torch.float32)

    def sees(self, y: Tensor, features: Tensor | None = None) -> Context:
        """Return the view that the noise has of inputs with labels `(B,)`."""
        return Context(y if self.classes > 1 else torch.zeros_like(y), features)

    def relaxed(
        self,
        context: Context,
        draws: DrawBlock,
        budget: Budget,
        tau: float,
        heat: Temperatures = COLD,
    ) -> tuple[Tensor, Given]:
        """Perturbations with gradients `(B, S, C, H, W)`, and the mixture they came from."""
        given = self.mixture(context, heat)
        gumbel = self._uniform(draws, self.family.components)
        latent = given.relaxed(gumbel, self._normal(draws, self.family.components), tau)
        return self._perturbation(latent, draws, budget), given

    def pair(
        self, context: Context, draws: DrawBlock, budget: Budget, tau: float, std: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Latent means with gradients, and two perturbations on either side of each without.

        Means m and normal steps e `(B, 1, D)`, and perturbations `(B, 2, C, H, W)` of m + std e and
        m - std e with the same other random numbers. Noise that is not a pattern has few parameters,
        which take the place of the means.
        """
        one = replace(draws, size=1, capacity=1)
        if not self.is_pattern:
            return self._parameter_pair(context, one, budget, std)
        given = self.mixture(context)
        gumbel = self._uniform(one, self.family.components)
        size = self.mixture.covariance.noise_size(self.family.components)
        still = gumbel.new_zeros(*gumbel.shape[:2], size)
        means = given.relaxed(gumbel, still, tau)
        step = self._split(one.normal(NOISE_STREAM, (self.upsampler.positions * means.shape[-1],)))
        with torch.no_grad():
            sides = [self._perturbation(means + sign * std * step, one, budget) for sign in (1, -1)]
        return means, step, torch.cat(sides, 1)

    def _parameter_pair(
        self, context: Context, draws: DrawBlock, budget: Budget, std: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `pair` does for P parameters `(B, 1, P)`; a few inputs share a step."""
        moved: list[tuple[Tensor, float]] = [*self.upsampler.scored_parameters()]
        if not moved or self.family.dependency.knows:
            moved = [*moved, (self.mixture.means, 1.0)]
            moved += [] if moved[1:] else [(self.mixture.logits, 1.0), (self.mixture.raw, 1.0)]
            if self.family.dependency.knows and self.family.components > 1:
                moved.append((self.mixture.label_weights.weight, 1.0))
        flat = torch.cat([each.flatten() / scale for each, scale in moved])
        before = flat.detach()
        counts = [each.numel() for each, _ in moved]
        steps, sides = [], []
        with torch.no_grad():
            for start in range(0, len(context.labels), SHARED_STEP):
                rows = slice(start, start + SHARED_STEP)
                some = replace(draws, indices=draws.indices[rows])
                first = replace(some, indices=some.indices[:1])
                step = first.normal(DIRECTION_STREAM, (len(flat),))
                seen = Context(context.labels[rows], context.features)
                pair = []
                for sign in (std, -std, 0):
                    places = (before + sign * step[0, 0]).split(counts)
                    for (each, scale), place in zip(moved, places, strict=True):
                        each.copy_(scale * place.view_as(each))
                    pair += [self.exact(seen, some, budget)] if sign else []
                sides.append(torch.cat(pair, 1))
                steps.append(step.expand(len(pair[0]), -1, -1))
        return flat.expand(len(context.labels), 1, -1), torch.cat(steps), torch.cat(sides)

    def exact(self, context: Context, draws: DrawBlock, budget: Budget) -> Tensor:
        """Perturbations as they are measured, `(B, S, C, H, W)`."""
        if self.family.floor == 1:
            return budget.uniform(draws, FLOOR_NOISE, self.shape)
        given = self.mixture(context)
        latent = given.exact(self.choose(given, context, draws), self._normal(draws, 1))
        return self._perturbation(latent, draws, budget)

    def centre(self, context: Context, draws: DrawBlock) -> Tensor:
        """The mean of the component of the first draw of every input, `(B, D)`."""
        given = self.mixture(context)
        chosen = self.choose(given, context, draws)[:, :1]
        noise = given.free.new_zeros(len(chosen), 1, self.mixture.covariance.noise_size(1))
        means: Tensor = given.exact(chosen, noise)[:, 0]
        return means

    def choose(self, given: Given, context: Context, draws: DrawBlock) -> Tensor:
        """Return the component of every latent vector, `(B, S P)`, or `(B, 1)` if all are the same."""
        if self.family.components == 1:
            return self.chosen.new_zeros(len(context.labels), 1)
        if self.rule is Rule.WEIGHTS:
            return given.choose(self._uniform(draws, 1).squeeze(-1))
        if self.rule is Rule.LARGEST:
            largest = given.log_weights.argmax(-1).expand(len(context.labels))
        else:
            largest = self.chosen[context.labels]
        return largest[:, None]

    @property
    def is_pattern(self) -> bool:
        """Whether a draw has one latent vector, so that a component is a pattern with its own PR."""
        return self.upsampler.positions == 1

    def sharpened(self, rule: Rule, chosen: Tensor | None = None) -> Distribution:
        """A copy that chooses components by another rule."""
        other = copy.deepcopy(self)
        other.rule = rule
        if chosen is not None:
            other.chosen.copy_(chosen.expand(self.classes))
        return other

    def at_largest(self) -> Distribution:
        """Return a copy that uses its largest component, where a component is a pattern."""
        return self.sharpened(Rule.LARGEST if self.is_pattern else self.rule)

    @torch.no_grad()
    def narrow(self) -> None:
        """Bring the latent standard deviations down to their least."""
        self.mixture.raw[..., : self.mixture.covariance.latent_dim] = NARROW

    @torch.no_grad()
    def at_edge(self) -> Distribution:
        """A copy with twice the means, nearer to the edge of the budget."""
        other = copy.deepcopy(self)
        for name, parameter in other.mixture.named_parameters():
            moves = ("basis",) if hasattr(other.mixture, "basis") else ("input_means",)
            if name.split(".")[0] in ("means", *moves):
                parameter.mul_(2)
        return other

    def with_floor(self, floor: float) -> Distribution:
        """Return the distribution with another floor rho."""
        if floor == self.family.floor:
            return self
        other = copy.deepcopy(self)
        other.family = other.mixture.family = self.family.with_(floor=floor)
        return other

    def _split(self, drawn: Tensor) -> Tensor:
        """Return random numbers `(B, S, P N)` of draws as those of latent vectors, `(B, S P, N)`."""
        vectors: Tensor = drawn.unflatten(-1, (self.upsampler.positions, -1)).flatten(1, 2)
        return vectors

    def _uniform(self, draws: DrawBlock, components: int) -> Tensor:
        """Return uniform numbers that choose among components, `(B, S P, K)`."""
        return self._split(
            draws.uniform(COMPONENT_STREAM, (self.upsampler.positions * components,))
        )

    def _normal(self, draws: DrawBlock, components: int) -> Tensor:
        """Return the normal numbers of latent vectors that mix this many components."""
        size = self.mixture.covariance.noise_size(components)
        return self._split(draws.normal(NOISE_STREAM, (self.upsampler.positions * size,)))

    def _perturbation(self, latent: Tensor, draws: DrawBlock, budget: Budget) -> Tensor:
        vectors = latent.unflatten(1, (-1, self.upsampler.positions)).flatten(-2)
        delta = budget.squash(self.upsampler(vectors), self.scale)
        rho = self.family.floor
        if rho == 0:
            return delta
        return (1 - rho) * delta + rho * budget.uniform(draws, FLOOR_NOISE, self.shape)
