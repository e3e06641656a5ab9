"""Noise that sees the label: for each class, where its draws lie along the first component."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from nppr.report.figures.drawn import Drawn
from nppr.report.figures.projection import curve, flat, plane_of
from nppr.report.figures.style import new_figure, thinned
from nppr.report.figures.subject import Subject, percent
from nppr.types import FloatArray, IntArray

__all__ = ["bands"]

GRID = 160
NAMES = 30


def bands(subject: Subject) -> Drawn | None:
    """A heat map with a row a class, of the first source whose noise sees the label."""
    for draws in subject.draws:
        seen = subject.dependency(draws.source)
        if seen is not None and seen.sees_label:
            break
    else:
        return None
    rows = flat(draws.many)
    plane = plane_of(rows)
    if plane is None:
        return None
    values = plane.of(rows)[:, 0]
    labels: IntArray = np.repeat(draws.labels.numpy(), draws.many.shape[1])
    classes = np.unique(labels)
    margin = 0.08 * float(np.ptp(values))
    grid = np.linspace(values.min() - margin, values.max() + margin, GRID)
    density = np.stack([curve(values[labels == label], grid) for label in classes])
    figure = new_figure(min(7.0, max(2.2, 1.2 + 0.2 * len(classes))), width=6.2)
    _paint(figure.subplots(), subject, density / density.max(1, keepdims=True), grid, classes)
    centres = [float(values[labels == label].mean()) for label in classes]
    low, high = int(np.argmin(centres)), int(np.argmax(centres))
    figure.axes[0].set_xlabel(f"first component ({percent(plane.shares[0])} of the variance)")
    return Drawn(
        id="bands",
        title=f"Perturbations of {draws.source} along the first component, by class",
        alt=f"Heat map of the density of the first principal coordinate, which holds"
        f" {percent(plane.shares[0])} of the variance, for {len(classes)} classes. Means run from"
        f" {centres[low]:.2f} (class {subject.class_name(int(classes[low]))}) to"
        f" {centres[high]:.2f} (class {subject.class_name(int(classes[high]))}).",
        caption="Each row is a class: bright where its draws lie, each row scaled to its own maximum."
        " Rows that differ mean noise that depends on the class.",
        figure=figure,
    )


def _paint(
    axes: Axes, subject: Subject, density: FloatArray, grid: FloatArray, classes: IntArray
) -> None:
    shown = axes.imshow(
        density,
        aspect="auto",
        cmap="cividis",
        vmin=0,
        vmax=1,
        extent=(float(grid[0]), float(grid[-1]), len(classes) - 0.5, -0.5),
    )
    ticks = thinned(len(classes), NAMES)
    axes.set_yticks(ticks, [subject.class_name(int(classes[tick])) for tick in ticks])
    axes.set_ylabel("class")
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.02, fraction=0.05, ticks=[0, 1])
    bar.set_ticklabels(["0", "max"])
    bar.outline.set_visible(False)
    bar.set_label("density")
