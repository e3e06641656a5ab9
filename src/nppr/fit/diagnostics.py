"""What a fitted distribution looks like: how many components it uses and how random it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from nppr.budget import Budget
from nppr.classifiers import Prepared
from nppr.distributions import Distribution
from nppr.draws import DRAWS_PER_BLOCK, DrawBlock
from nppr.fit.inputs import Found
from nppr.sources import Learned
from nppr.types import FloatArray, Select

__all__ = ["noise_diagnostics", "weight_diagnostics"]

INPUTS = 32
EDGE = 0.99
"""A pixel (linf) or a draw (l2) is at the edge from this share of the radius on."""


def weight_diagnostics(weights: FloatArray) -> dict[str, float]:
    """Entropy ratio, largest, smallest, spread and effective number of weights `(N, K)`.

    Each is computed for every context and averaged: a distribution that uses one component per class is
    sharp, although all components are used. The entropy ratio of one component is 1.
    """
    components = weights.shape[1]
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(1)
    ratio = entropy / math.log(components) if components > 1 else np.ones(len(weights))
    return {
        "entropy_ratio": float(ratio.mean()),
        "max_weight": float(weights.max(1).mean()),
        "min_weight": float(weights.min(1).mean()),
        "std_weight": float(weights.std(1).mean()),
        "effective_components": float(np.exp(entropy).mean()),
    }


def noise_diagnostics(
    distribution: Distribution,
    budget: Budget,
    classifier: Prepared,
    inputs: Found[Select],
    seed: int,
) -> dict[str, Any]:
    """Realised standard deviation of delta / radius, and the share at the budget's edge.

    The standard deviation is that of a pixel over the draws of one input, as a root mean square over
    pixels and inputs: 0 is one fixed pattern for each input. In l2 the radius is that of one pixel,
    r / sqrt(D), and whole draws are at the edge rather than pixels.
    """
    some = inputs.limited(INPUTS, seed)
    x, y = some.batch(np.arange(len(some)), classifier.device)
    draws = DrawBlock(
        seed=seed,
        split=some.part.kind.name,
        indices=tuple(some.part.indices.tolist()),
        block=0,
        size=DRAWS_PER_BLOCK,
        device=classifier.device,
    )
    with classifier.frozen() as models, torch.inference_mode():
        delta = Learned(budget, distribution, known=some.known()).perturb(models.fast, x, y, draws)
    pixel_radius = budget.norm.noise_scale(budget.radius, math.prod(delta.shape[-3:]))
    spread = delta.var(1).mean().sqrt() / pixel_radius
    sizes = delta.abs() if budget.norm.name == "linf" else budget.size(delta)
    return {
        "realised_std": float(spread),
        "share_at_edge": float((sizes >= EDGE * budget.radius).float().mean()),
        "scale": float(distribution.scale.detach()),
        "floor": distribution.family.floor,
    }
