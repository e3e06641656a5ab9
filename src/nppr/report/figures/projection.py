"""Perturbations in the plane: principal components and smooth densities.

N draws of P pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import gaussian_kde
from torch import Tensor

from nppr.types import FloatArray

__all__ = ["Plane", "curve", "flat", "plane_of", "surface"]

TINY = 1e-9
BLUR = 0.02
"""Least width of a kernel, as a share of the axis: one fixed pattern is shown as a narrow peak."""


@dataclass(frozen=True, eq=False)
class Plane:
    """The two directions `(2, P)` in which draws vary most around `centre`, and their shares."""

    centre: FloatArray
    directions: FloatArray
    shares: tuple[float, float]

    def of(self, draws: FloatArray) -> FloatArray:
        """Coordinates of draws `(N, P)` in root mean squares of a pixel, `(N, 2)`.

        With P pixels all at the edge of the budget a draw has the length 1.
        """
        found: FloatArray = (draws - self.centre) @ self.directions.T / np.sqrt(draws.shape[1])
        return found


def flat(images: Tensor) -> FloatArray:
    """Images `(..., C, h, w)` as rows `(N, C h w)`."""
    return images.double().flatten(-3).flatten(0, -2).numpy()


def plane_of(draws: FloatArray) -> Plane | None:
    """The plane of the first two principal components, None where draws do not vary."""
    centre = draws.mean(0)
    centred = draws - centre
    if len(draws) < 3 or float(np.abs(centred).max()) < TINY:
        return None
    if len(centred) < centred.shape[1]:
        values, vectors = np.linalg.eigh(centred @ centred.T)
        rows = vectors[:, ::-1][:, :2].T @ centred
    else:
        values, vectors = np.linalg.eigh(centred.T @ centred)
        rows = vectors[:, ::-1][:, :2].T
    values = np.maximum(values[::-1], 0)
    if len(rows) < 2:
        rows = np.vstack([rows, np.zeros_like(rows[:1])])
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows / np.maximum(lengths, TINY)
    largest = np.take_along_axis(rows, np.abs(rows).argmax(1)[:, None], 1)
    total = float(values.sum())
    shares = tuple(float(value) / total for value in [*values[:2], 0.0][:2])
    return Plane(centre, np.where(largest < 0, -rows, rows), (shares[0], shares[1]))


def curve(values: FloatArray, grid: FloatArray) -> FloatArray:
    """A smooth density of values `(N,)` on a grid `(G,)`."""
    width = max(_bandwidth(values), BLUR * float(np.ptp(grid)))
    gaps = (grid[:, None] - values[None, :]) / width
    found: FloatArray = np.exp(-0.5 * gaps**2).sum(1) / (len(values) * width * np.sqrt(2 * np.pi))
    return found


def surface(points: FloatArray, x: FloatArray, y: FloatArray) -> FloatArray:
    """A smooth density of points `(N, 2)` on the grid of x `(G,)` and y `(H,)`, `(H, G)`.

    The kernel is that of scipy, with a least width along both axes.
    """
    least = np.array([BLUR * np.ptp(x), BLUR * np.ptp(y)])
    inner = np.cov(points.T) if len(points) > 1 else np.zeros((2, 2))
    # Noise of the least width: a kernel of a degenerate cloud would have no inverse.
    rng = np.random.default_rng(0)
    narrow = np.sqrt(np.linalg.eigvalsh(inner)[0].clip(0)) < least.min()
    if narrow or len(points) < 3:
        points = np.repeat(points, max(1, 60 // len(points)), 0)
        points = points + rng.normal(size=points.shape) * least
    columns, rows = np.meshgrid(x, y)
    found = gaussian_kde(points.T)(np.vstack([columns.ravel(), rows.ravel()]))
    shaped: FloatArray = found.reshape(columns.shape)
    return shaped


def _bandwidth(values: FloatArray) -> float:
    """Scott's rule in one dimension."""
    return float(values.std() * len(values) ** -0.2)
