"""Where the perturbations of each learned source lie: density contours along two components."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from nppr.report.figures.drawn import Drawn
from nppr.report.figures.projection import Plane, flat, plane_of, surface
from nppr.report.figures.style import look_of, named, new_figure, thinned
from nppr.report.figures.subject import Subject, percent
from nppr.types import FloatArray

__all__ = ["contours", "frame", "levels_of"]

PANELS = 6
GRID = 60
SHARES = (0.95, 0.75, 0.5, 0.25)
"""Shares of the draws that lie within the contours, from the outermost in."""


def contours(subject: Subject) -> Drawn | None:
    """One panel a source, all in the plane of the principal components of all draws together."""
    chosen = [subject.draws[number] for number in thinned(len(subject.draws), PANELS)]
    rows = [flat(each.many) for each in chosen]
    plane = plane_of(np.concatenate(rows)) if rows else None
    if plane is None:
        return None
    points = [plane.of(each) for each in rows]
    x, y = frame(np.concatenate(points))
    columns = min(3, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = new_figure(0.4 + 2.5 * lines, width=min(7.2, 0.7 + 2.7 * columns))
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for each, found, place in zip(chosen, points, axes, strict=False):
        _panel(place, each.source, found, x, y)
    for place in axes[len(chosen) :]:
        place.set_axis_off()
    figure.supxlabel(f"first component ({percent(plane.shares[0])} of the variance)", fontsize=9)
    figure.supylabel(f"second component ({percent(plane.shares[1])})", fontsize=9)
    return Drawn(
        id="contours",
        title="Perturbations along their two principal components",
        alt=_alt(plane, [each.source for each in chosen], points),
        caption="Contours hold 25, 50, 75 and 95 % of the draws. Coordinates are shares of the radius"
        " (root mean square over pixels); all panels share one plane.",
        figure=figure,
    )


def frame(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The grid `(G,)`, `(G,)` around points `(N, 2)`, as wide as high and with room for contours."""
    low, high = points.min(0), points.max(0)
    half = max(float((high - low).max()) * 0.68, 1e-3)
    middle = (low + high) / 2
    x, y = (np.linspace(centre - half, centre + half, GRID) for centre in middle)
    return x, y


def levels_of(density: FloatArray) -> list[float]:
    """The heights at which contours hold `SHARES` of a density, increasing."""
    ordered = np.sort(density.ravel())[::-1]
    held = np.cumsum(ordered) / ordered.sum()
    places = np.minimum(np.searchsorted(held, SHARES), len(held) - 1)
    return sorted(set(ordered[places].tolist()))


def _panel(axes: Axes, source: str, points: FloatArray, x: FloatArray, y: FloatArray) -> None:
    density = surface(points, x, y)
    levels = levels_of(density)
    look = look_of(source)
    shades = [to_rgba(look.colour, 0.15 + 0.18 * step) for step in range(len(levels))]
    axes.contourf(x, y, density, levels=[*levels, float(density.max()) * 1.01], colors=shades)
    axes.contour(
        x, y, density, levels=levels, colors=look.colour, linewidths=1, linestyles=look.line
    )
    axes.set_title(named(source))
    axes.set_box_aspect(1)
    axes.grid()


def _alt(plane: Plane, sources: list[str], points: list[FloatArray]) -> str:
    parts = [
        f"{source}: {len(found)} draws around ({found[:, 0].mean():.2f}, {found[:, 1].mean():.2f})"
        f" with standard deviations {found[:, 0].std():.2f} and {found[:, 1].std():.2f}"
        for source, found in zip(sources, points, strict=True)
    ]
    first, second = plane.shares
    return (
        f"Density contours of perturbations along two principal components, which hold"
        f" {percent(first)} and {percent(second)} of the variance. {'; '.join(parts)}."
    )
