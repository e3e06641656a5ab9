"""The components of a mixture along the few directions that tell them apart.

K components, D latent dimensions, d directions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nppr.noise.mixture import Given

__all__ = ["described"]

DIRECTIONS = 16


def described(weights: Tensor, given: Given) -> dict[str, Tensor]:
    """Means, deviations and covariances of the components of one input with weights `(1, K)`.

    Directions: those in which the means differ, then those in which the components vary most.
    """
    component = given.covariance.component(given.means, given.raw, given.growth)
    means, stds = component.mean[0], component.variance[0].sqrt()
    centred = means - means.mean(0)
    raw, growth = given.raw[0], given.growth[0]
    varying = given.covariance.principal(weights[0], raw, growth, DIRECTIONS)
    directions = _directions(centred, varying)
    return {
        "means": means,
        "stds": stds,
        "covariances": given.covariance.along(directions, raw, growth),
        "projected": centred @ directions.T,
    }


def _directions(centred: Tensor, varying: Tensor) -> Tensor:
    """At most `DIRECTIONS` orthonormal rows `(d, D)`: of the centred means `(K, D)`, then the others.

    Each points where its largest entry is positive.
    """
    wanted = min(DIRECTIONS, centred.shape[1])
    _, sizes, rows = torch.linalg.svd(centred, full_matrices=False)
    kept = rows[sizes > 1e-5 * sizes.max().clamp_min(1e-6)]
    found: Tensor = torch.linalg.qr(torch.cat([kept, varying]).T).Q.T[:wanted]
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    return found * torch.where(largest < 0, -1.0, 1.0)
