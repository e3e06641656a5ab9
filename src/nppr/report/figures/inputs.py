"""How the noise differs from input to input: densities of many draws of a few inputs."""

from __future__ import annotations

import numpy as np
from matplotlib.lines import Line2D

from nppr.report.figures.contours import frame, levels_of
from nppr.report.figures.drawn import Drawn
from nppr.report.figures.projection import flat, plane_of, surface
from nppr.report.figures.style import LINES, MARKERS, PALETTE, new_figure
from nppr.report.figures.subject import Subject, percent

__all__ = ["inputs"]

FEWEST = 3


def inputs(subject: Subject) -> Drawn | None:
    """Contours of the draws of each input, in the plane of all of them."""
    if not subject.draws or subject.draws[0].few.shape[1] < FEWEST:
        return None
    draws = subject.draws[0]
    plane = plane_of(flat(draws.few))
    if plane is None:
        return None
    points = [plane.of(flat(each)) for each in draws.few]
    x, y = frame(np.concatenate(points))
    figure = new_figure(3.8, width=6.2)
    axes = figure.subplots()
    handles, parts = [], []
    for number, found in enumerate(points):
        colour, line = PALETTE[number % len(PALETTE)], LINES[number % len(LINES)]
        marker = MARKERS[number % len(MARKERS)]
        density = surface(found, x, y)
        axes.contour(x, y, density, levels=levels_of(density), colors=colour, linestyles=line,
                     linewidths=1.2)  # fmt: skip
        middle = found.mean(0)
        axes.plot(*middle, marker=marker, color=colour)
        name = subject.class_name(int(draws.labels[number]))
        label = f"input {int(draws.indices[number])} ({name})"
        handles.append(Line2D([], [], color=colour, linestyle=line, marker=marker, label=label))
        parts.append(f"{label} around ({middle[0]:.2f}, {middle[1]:.2f})")
    axes.set_box_aspect(1)
    axes.grid()
    axes.set_xlabel(f"first component ({percent(plane.shares[0])} of the variance)")
    axes.set_ylabel(f"second component ({percent(plane.shares[1])})")
    figure.legend(handles=handles, loc="outside right center")
    return Drawn(
        id="inputs",
        title=f"Perturbations of single inputs under {draws.source}",
        alt=f"Densities of {draws.few.shape[1]} perturbations of each of {len(points)} inputs along"
        f" two principal components, which hold {percent(plane.shares[0])} and"
        f" {percent(plane.shares[1])} of the variance: {'; '.join(parts)}.",
        caption="Contours hold 25, 50, 75 and 95 % of an input's draws and marks are their means, in"
        " shares of the radius. Contours that lie apart mean noise that depends on the input.",
        figure=figure,
    )
