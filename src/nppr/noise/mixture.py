"""The latent mixture `e ~ sum_k pi_k N(mu_k, Sigma_k)` given a context.

Every parameter is `free[k] + residual(context)`, and the last layer of every residual starts at zero:
a family that sees more starts exactly at one that sees less. With `random_start` parameters with a head
have no free part, and heads start as PyTorch's layers do. Where D is larger than J, the
width of the heads, features move the means along J directions that all components share: `mu_k(x) =
free[k] + c_k(x) basis` with c_k(x) in R^J, so a draw mixes J numbers of each component and never D.
Relaxed draws (Gumbel-softmax at temperature tau) have gradients, exact draws are what is measured.
Shapes: B inputs, S draws, K components, D latent dimensions, F features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.noise.covariance import Covariance, choose, mix
from nppr.noise.family import COLD, Family, Temperatures

PER_COMPONENT = ("logits", "means", "raw")
"""Parameters with a row per component."""

HEADS = ("label_weights", "input_weights", "input_means", "input_raw")
"""Layers whose outputs are rows for every component."""

START_STD = math.exp(-1)
"""Standard deviation of the latent coordinates at the start of a fit."""

RANDOM_START_STD = math.log(2)
"""Standard deviation at the start with `random_start`: the softplus of 0."""


@dataclass(frozen=True)
class Context:
    """The knowledge of the noise: labels `(B,)` and features `(B, F)`."""

    labels: Tensor
    features: Tensor | None = None


@dataclass(frozen=True)
class Given:
    """The mixture for a context.

    Log weights `(B|1, K)`, free means `(B|1, K, D)`, raw `(B|1, K, P)` and growth `(B|1, K, 1)` of
    the covariances; `moved` are coefficients `(B, K, J)` and directions `(J, D)` that move the means,
    and `spread` multiplies the standard deviations of relaxed draws.
    """

    log_weights: Tensor
    free: Tensor
    raw: Tensor
    growth: Tensor
    covariance: Covariance
    moved: tuple[Tensor, Tensor] | None = None
    spread: float = 1.0

    @property
    def means(self) -> Tensor:
        """The means `(B|1, K, D)`."""
        if self.moved is None:
            return self.free
        coefficients, basis = self.moved
        return self.free + coefficients @ basis

    def relaxed(self, gumbel: Tensor, noise: Tensor, tau: float) -> Tensor:
        """Draws with gradients: uniform numbers `(B, S, K)` and normal noise -> `(B, S, D)`."""
        tiny = torch.finfo(gumbel.dtype).tiny
        gumbel = -(-gumbel.clamp_min(tiny).log()).clamp_min(tiny).log()
        weights = torch.softmax((self.log_weights.unsqueeze(1) + gumbel) / tau, -1)
        centred = self.covariance.relaxed(weights, self.raw, self.growth, noise)
        means = mix(weights, self.free)
        if self.moved is not None:
            coefficients, basis = self.moved
            means = means + mix(weights, coefficients) @ basis
        return means + (centred if self.spread == 1 else self.spread * centred)

    def exact(self, chosen: Tensor, noise: Tensor) -> Tensor:
        """Draws of the chosen components: `(B, S|1)` and normal noise -> `(B, S, D)`."""
        means = choose(self.free, chosen)
        if self.moved is not None:
            coefficients, basis = self.moved
            means = means + choose(coefficients, chosen) @ basis
        return means + self.covariance.exact(chosen, self.raw, self.growth, noise)

    def choose(self, uniform: Tensor) -> Tensor:
        """Components by the weights: uniform numbers `(B, S)` -> `(B, S)`."""
        edges = self.log_weights.exp().cumsum(-1)[..., :-1].expand(len(uniform), -1)
        return torch.searchsorted(edges.contiguous(), uniform.contiguous(), right=True)


class Mixture(nn.Module):
    """`mixture(context) -> Given`.

    Free means start uniform in [-1, 1]; `features` is F, the number of features, where they are seen.
    """

    logits: Tensor
    means: Tensor
    raw: Tensor
    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(
        self, family: Family, covariance: Covariance, classes: int, features: int = 0
    ) -> None:
        super().__init__()
        k, d, p = family.components, covariance.latent_dim, covariance.size
        self.family = family
        self.covariance = covariance
        sees_input, random = family.dependency.sees_input, family.random_start
        head = nn.Linear if random else _zero
        std = RANDOM_START_STD if random else START_STD
        self._add_free("logits", torch.zeros(k), sees_input or family.dependency.sees_label)
        self._add_free("means", torch.rand(k, d) * 2 - 1, sees_input)
        self._add_free("raw", covariance.start(std).repeat(k, 1), sees_input)
        if family.dependency.sees_label:
            self.embedding = nn.Embedding(classes, family.label_dim)
            self.label_weights = head(family.label_dim, k)
        if sees_input:
            self.register_buffer("feature_mean", torch.zeros(features))
            self.register_buffer("feature_scale", torch.ones(features))
            self.shared = nn.Sequential(nn.Linear(features, family.hidden_dim), nn.ReLU())
            if not (family.label_only and family.dependency.sees_label):
                self.input_weights = head(family.hidden_dim, k)
            if family.wide_heads or d <= family.hidden_dim:
                self.input_means = head(family.hidden_dim, k * d)
            else:
                self.input_means = nn.Linear(family.hidden_dim, k * family.hidden_dim)
                self.basis = nn.Parameter(torch.zeros(family.hidden_dim, d))
            self.input_raw = head(family.hidden_dim, k * (p if family.wide_heads else 1))

    def _add_free(self, name: str, start: Tensor, has_head: bool) -> None:
        """The free part of a parameter; with `random_start` it is a fixed 0 beside a head."""
        if has_head and self.family.random_start:
            self.register_buffer(name, torch.zeros_like(start))
        else:
            self.register_parameter(name, nn.Parameter(start))

    def forward(self, context: Context, heat: Temperatures = COLD) -> Given:
        """The mixture for a context."""
        k = self.family.components
        logits, means, raw = self.logits[None], self.means[None], self.raw[None]
        moved = None
        growth = raw.new_ones(1, k, 1)
        if self.family.dependency.sees_label:
            seen = F.normalize(self.embedding(context.labels), dim=-1)
            logits = logits + self.label_weights(seen)
        if self.family.dependency.sees_input:
            assert context.features is not None, "features are needed by this dependency"
            standardised = (context.features - self.feature_mean) * self.feature_scale
            seen = self.shared(standardised) * heat.shared
            if hasattr(self, "input_weights"):
                logits = logits + self.input_weights(seen)
            coefficients = self.input_means(seen).unflatten(-1, (k, -1))
            shift = self.input_raw(seen).unflatten(-1, (k, -1))
            if hasattr(self, "basis"):
                moved = coefficients * heat.means, self.basis
            else:
                means = means + coefficients
            if self.family.wide_heads:
                raw = raw + shift
            else:
                growth = 2 * torch.sigmoid(shift)
        log_weights = torch.log_softmax(logits * heat.weights, -1)
        means = means * heat.means
        return Given(log_weights, means, raw, growth, self.covariance, moved, heat.stds)

    def standardise(self, features: Tensor) -> None:
        """Take mean and spread of these features `(N, F)` as the scale the heads see."""
        self.feature_mean.copy_(features.mean(0))
        spread = features.std(0) if len(features) > 1 else torch.ones_like(features[0])
        typical = float(spread.mean()) or 1.0
        self.feature_scale.copy_(1 / spread.clamp_min(0.1 * typical))


def _zero(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that starts at zero."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
