"""The components of a mixture along the few directions that tell them apart.

K components, D latent dimensions, d directions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Distribution, LowRankMultivariateNormal, MultivariateNormal

from nppr.distributions.mixture import Given

__all__ = ["described"]

DIRECTIONS = 16


def described(weights: Tensor, given: Given) -> dict[str, Tensor]:
    """Means, deviations and covariances of the components of one input with weights `(1, K)`.

    Directions: those in which the means differ, then those in which the components vary most.
    """
    component = given.covariance.component(given.means, given.raw, given.growth)
    means, stds = component.mean[0], component.variance[0].sqrt()
    centred = means - means.mean(0)
    directions = _directions(centred, _varying(weights[0], component))
    return {
        "means": means,
        "stds": stds,
        "covariances": _along(directions, component),
        "projected": centred @ directions.T,
    }


def _along(directions: Tensor, component: Distribution) -> Tensor:
    """`V Sigma_k V^T` with directions V `(d, D)`, `(K, d, d)`."""
    if isinstance(component, MultivariateNormal):
        factor: Tensor = directions @ component.scale_tril[0]
        return factor @ factor.mT
    if isinstance(component, LowRankMultivariateNormal):
        factor = directions @ component.cov_factor[0]
        return factor @ factor.mT + _weighted(directions, component.cov_diag[0])
    return _weighted(directions, component.variance[0])


def _weighted(directions: Tensor, variances: Tensor) -> Tensor:
    """`V diag(v_k) V^T` with variances v `(K, D)`, `(K, d, d)`."""
    return (directions * variances.unsqueeze(1)) @ directions.T


def _varying(weights: Tensor, component: Distribution) -> Tensor:
    """Directions `(., D)` of the largest variances under `sum_k pi_k Sigma_k`, the largest first."""
    if isinstance(component, MultivariateNormal):
        mean = torch.einsum("k,kde->de", weights, component.covariance_matrix[0])
        largest: Tensor = torch.linalg.eigh(mean).eigenvectors.T.flip(0)[:DIRECTIONS]
        return largest
    variances = weights @ component.variance[0]
    axes = variances.argsort(descending=True, stable=True)[:DIRECTIONS]
    found = F.one_hot(axes, len(variances)).to(weights)
    if isinstance(component, LowRankMultivariateNormal):
        shared = component.cov_factor[0] * weights.sqrt()[:, None, None]
        columns = shared.permute(1, 0, 2).flatten(1)
        found = torch.cat([torch.linalg.svd(columns, full_matrices=False)[0].T, found])
    return found


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
