"""The latent mixture `e ~ sum_k pi_k N(mu_k, Sigma_k)` given a context.

Every parameter is `free[k] + residual(context)`, and the last layer of every residual starts at zero:
a family that sees more starts exactly at one that sees less. `mixture(context)` returns the
distribution; relaxed draws (Gumbel-softmax at temperature tau) have gradients, exact draws are what
is measured. Shapes: B inputs, S draws, K components, D latent dimensions, F features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.distributions.covariance import Covariance, mix
from nppr.distributions.settings import Family

__all__ = ["Context", "Given", "Mixture", "Temperatures"]

START_STD = math.exp(-1)
"""Standard deviation of the latent coordinates at the start of a fit."""


@dataclass(frozen=True)
class Context:
    """What the noise may see: labels `(B,)` and features `(B, F)`."""

    labels: Tensor
    features: Tensor | None = None


@dataclass(frozen=True)
class Temperatures:
    """The temperatures of the paper, all 1 outside its preset.

    Weights are softened by `weights`, means and raw standard deviations divided by `means` and
    `stds`, and what the heads share by `shared`.
    """

    weights: float = 1.0
    means: float = 1.0
    stds: float = 1.0
    shared: float = 1.0


@dataclass(frozen=True)
class Given:
    """The mixture for a context.

    Log weights `(B|1, K)`, means `(B|1, K, D)`, raw `(B|1, K, P)` and growth `(B|1, K, 1)` of the
    covariances.
    """

    log_weights: Tensor
    means: Tensor
    raw: Tensor
    growth: Tensor
    covariance: Covariance

    def relaxed(self, gumbel: Tensor, noise: Tensor, tau: float) -> Tensor:
        """Draws with gradients: uniform numbers `(B, S, K)` and normal noise -> `(B, S, D)`."""
        tiny = torch.finfo(gumbel.dtype).tiny
        gumbel = -(-gumbel.clamp_min(tiny).log()).clamp_min(tiny).log()
        weights = torch.softmax((self.log_weights.unsqueeze(1) + gumbel) / tau, -1)
        centred = self.covariance.relaxed(weights, self.raw, self.growth, noise)
        return mix(weights, self.means) + centred

    def exact(self, chosen: Tensor, noise: Tensor) -> Tensor:
        """Draws of the chosen components: `(B, S)` and normal noise -> `(B, S, D)`."""
        values = (self.means, self.raw, self.growth)
        means, raw, growth = (_choose(value, chosen) for value in values)
        return means + self.covariance.exact(raw, growth, noise)

    def choose(self, uniform: Tensor) -> Tensor:
        """Components by the weights: uniform numbers `(B, S)` -> `(B, S)`."""
        edges = self.log_weights.exp().cumsum(-1)[..., :-1].expand(len(uniform), -1)
        return torch.searchsorted(edges.contiguous(), uniform.contiguous(), right=True)

    def log_prob(self, latent: Tensor) -> Tensor:
        """Log density at `(B, S, D)`, `(B, S)`."""
        values = (self.means, self.raw, self.growth)
        components = self.covariance.component(*(value.unsqueeze(1) for value in values))
        each = components.log_prob(latent.unsqueeze(2))
        return torch.logsumexp(self.log_weights.unsqueeze(1) + each, -1)


class Mixture(nn.Module):
    """`mixture(context) -> Given`.

    Free means start uniform in [-1, 1]; `features` is F, the number of features, where they are seen.
    """

    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(
        self, family: Family, covariance: Covariance, classes: int, features: int = 0
    ) -> None:
        super().__init__()
        k, d, p = family.components, covariance.latent_dim, covariance.size
        self.family = family
        self.covariance = covariance
        self.logits = nn.Parameter(torch.zeros(k))
        self.means = nn.Parameter(torch.rand(k, d) * 2 - 1)
        self.raw = nn.Parameter(covariance.start(START_STD).repeat(k, 1))
        if family.dependency.sees_label:
            self.embedding = nn.Embedding(classes, family.label_dim)
            self.label_weights = _zero(family.label_dim, k)
        if family.dependency.sees_input:
            self.register_buffer("feature_mean", torch.zeros(features))
            self.register_buffer("feature_scale", torch.ones(features))
            self.shared = nn.Sequential(nn.Linear(features, family.hidden_dim), nn.ReLU())
            if not (family.label_only and family.dependency.sees_label):
                self.input_weights = _zero(family.hidden_dim, k)
            self.input_means = _zero(family.hidden_dim, k * d)
            self.input_raw = _zero(family.hidden_dim, k * (p if family.wide_heads else 1))

    def forward(self, context: Context, heat: Temperatures | None = None) -> Given:
        """The mixture for a context."""
        heat = heat or Temperatures()
        k = self.family.components
        logits, means, raw = self.logits[None], self.means[None], self.raw[None]
        growth = raw.new_ones(1, k, 1)
        if self.family.dependency.sees_label:
            seen = F.normalize(self.embedding(context.labels), dim=-1)
            logits = logits + self.label_weights(seen)
        if self.family.dependency.sees_input:
            assert context.features is not None, "features are needed by this dependency"
            standardised = (context.features - self.feature_mean) * self.feature_scale
            seen = self.shared(standardised) / heat.shared
            if hasattr(self, "input_weights"):
                logits = logits + self.input_weights(seen)
            means = means + self.input_means(seen).unflatten(-1, (k, -1))
            shift = self.input_raw(seen).unflatten(-1, (k, -1))
            if self.family.wide_heads:
                raw = raw + shift
            else:
                growth = 2 * torch.sigmoid(shift)
        log_weights = torch.log_softmax(logits / heat.weights, -1)
        return Given(log_weights, means / heat.means, raw / heat.stds, growth, self.covariance)

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


def _choose(values: Tensor, chosen: Tensor) -> Tensor:
    """Rows of the chosen components: `(B|1, K, N)`, `(B, S)` -> `(B, S, N)`."""
    if len(values) == 1:
        return values[0][chosen]
    rows = torch.arange(len(chosen), device=chosen.device)
    return values[rows[:, None], chosen]
