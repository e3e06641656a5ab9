"""Routing: which of several equal components an input gets.

A child whose components are copies of one may send each class to another copy without changing its
law. From there the copies can part ways at once; with equal weights for all they would be pulled the
same way for long.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.distributions.distribution import Distribution

__all__ = ["route_by_features", "route_by_label"]

STRENGTH = 3.0
"""Logit of a class for its component: 20 times the weight of any other."""

RIDGE = 1e-2


@torch.no_grad()
def route_by_label(distribution: Distribution) -> None:
    """Send the classes to the components in turn, by the label head."""
    mixture = distribution.mixture
    seen = F.normalize(mixture.embedding.weight, dim=-1)
    wanted = _wanted(distribution, torch.arange(distribution.classes, device=seen.device))
    mixture.label_weights.weight.copy_(_ridge(seen, wanted).T)


@torch.no_grad()
def route_by_features(distribution: Distribution, features: Tensor, labels: Tensor) -> None:
    """The same by the feature head: features `(N, F)` tell the class of most inputs."""
    mixture = distribution.mixture
    seen = mixture.shared((features - mixture.feature_mean) * mixture.feature_scale)
    mixture.input_weights.weight.copy_(_ridge(seen, _wanted(distribution, labels)).T)


def _wanted(distribution: Distribution, labels: Tensor) -> Tensor:
    """Logits `(N, K)` that send class c to component c mod K."""
    components = distribution.family.components
    return STRENGTH * F.one_hot(labels % components, components).float()


def _ridge(seen: Tensor, wanted: Tensor) -> Tensor:
    """Least squares with a small ridge: `seen @ result` is about `wanted`."""
    gram = seen.T @ seen
    ridge = RIDGE * gram.diagonal().mean().clamp_min(1e-12)
    solved: Tensor = torch.linalg.solve(
        gram + ridge * torch.eye(len(gram), device=seen.device), seen.T @ wanted
    )
    return solved
