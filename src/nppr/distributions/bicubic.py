"""Bicubic interpolation as a fixed matrix.

With Keys' kernel W_a (Keys, 1981), n coarse and N fine pixels, and c_i = (i + 1/2) n/N - 1/2 the place
of fine pixel i on the coarse grid, the fine value is `sum_j W_a(c_i - j) coarse[clamp(j)]` over the
four nearest j. In two dimensions the matrix acts on rows and on columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["KEYS", "TORCH", "bicubic_matrix", "keys_kernel"]

KEYS = -0.5
"""The parameter of the paper's appendix: exact for quadratic signals."""

TORCH = -0.75
"""The parameter of `torch.nn.functional.interpolate`, which the authors' code calls."""


def keys_kernel(distance: Tensor, a: float) -> Tensor:
    """W_a of a distance in coarse pixels: a piecewise cubic that vanishes from 2 on."""
    t = distance.abs()
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = a * (((t - 5) * t + 8) * t - 4)
    return torch.where(t <= 1, near, torch.where(t < 2, far, torch.zeros_like(t)))


def bicubic_matrix(fine: int, coarse: int, a: float) -> Tensor:
    """The matrix `(fine, coarse)` of interpolation; its rows sum to 1, the border is repeated."""
    places = (torch.arange(fine, dtype=torch.float64) + 0.5) * coarse / fine - 0.5
    matrix = torch.zeros(fine, coarse, dtype=torch.float64)
    for offset in (-1, 0, 1, 2):
        nearest = places.floor() + offset
        columns = nearest.clamp(0, coarse - 1).long()
        weights = keys_kernel(places - nearest, a)
        matrix.scatter_add_(1, columns[:, None], weights[:, None])
    return matrix.float()
