from __future__ import annotations

import numpy as np
import pytest
import torch

from nppr.report.figures.figure_style import flat
from nppr.report.figures.noise_figures import curve, frame, levels_of, plane_of, surface


@pytest.mark.parametrize(("draws", "pixels"), [(400, 30), (20, 90)])
def test_the_plane_is_that_of_the_largest_variances(draws: int, pixels: int) -> None:
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(pixels, 3)))[0].T
    scores = rng.normal(size=(draws, 3)) * [5, 2, 0.1]
    plane = plane_of(scores @ axes + 3.0)
    assert plane is not None
    assert abs(plane.directions[0] @ axes[0]) > 0.95
    assert abs(plane.directions[1] @ axes[1]) > 0.95
    values = np.linalg.svd(scores - scores.mean(0), compute_uv=False) ** 2
    np.testing.assert_allclose(plane.shares, values[:2] / values.sum(), rtol=1e-6)
    points = plane.of(scores @ axes + 3.0)
    np.testing.assert_allclose(points.mean(0), 0, atol=1e-9)
    expected = np.sqrt(values[:2] / draws / pixels)
    np.testing.assert_allclose(points.std(0), expected, rtol=1e-6)


def test_no_plane_without_spread() -> None:
    assert plane_of(np.ones((50, 4))) is None
    assert plane_of(np.eye(2)) is None


def test_a_plane_of_one_pixel() -> None:
    plane = plane_of(np.arange(5.0)[:, None])
    assert plane is not None
    assert plane.shares == (1.0, 0.0)
    assert plane.of(np.arange(5.0)[:, None]).shape == (5, 2)


def test_flat_keeps_draws_together() -> None:
    images = torch.arange(2 * 3 * 4, dtype=torch.float16).view(2, 3, 1, 2, 2)
    rows = flat(images)
    assert rows.shape == (6, 4)
    assert rows[3].tolist() == [12, 13, 14, 15]


@pytest.mark.parametrize("values", [[0.3], [0.0, 1.0], list(np.linspace(-1, 1, 50))], ids=len)
def test_a_curve_is_a_density(values: list[float]) -> None:
    grid = np.linspace(-4, 5, 900)
    found = curve(np.array(values), grid)
    assert float(found.sum() * (grid[1] - grid[0])) == pytest.approx(1, abs=1e-3)
    centre = float((found * grid).sum() / found.sum())
    assert centre == pytest.approx(np.mean(values), abs=1e-3)


@pytest.mark.parametrize("number", [1, 2, 200])
@pytest.mark.parametrize("flattened", [False, True])
def test_a_surface_peaks_where_points_are(number: int, *, flattened: bool) -> None:
    points = np.random.default_rng(1).normal(size=(number, 2)) * [0.1, 0.0 if flattened else 0.1]
    points += [0.5, -0.2]
    x, y = np.linspace(-1, 1, 41), np.linspace(-1, 1, 41)
    found = surface(points, x, y)
    assert found.shape == (41, 41)
    row, column = np.unravel_index(found.argmax(), found.shape)
    assert abs(x[column] - points[:, 0].mean()) < 0.25
    assert abs(y[row] - points[:, 1].mean()) < 0.25


def test_contours_hold_their_shares() -> None:
    points = np.random.default_rng(0).normal(size=(4000, 2))
    x, y = frame(points)
    density = surface(points, x, y)
    levels = levels_of(density)
    assert len(levels) == 4
    for level, share in zip(levels, (0.95, 0.75, 0.5, 0.25), strict=True):
        assert float(density[density >= level].sum() / density.sum()) == pytest.approx(
            share, abs=0.02
        )
