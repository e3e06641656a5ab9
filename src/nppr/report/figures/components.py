"""The components of the mixture of one input: their means and covariances along a few directions."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from nppr.report.evidence import Draws
from nppr.report.figures.drawn import Drawn
from nppr.report.figures.style import INK, look_of, new_figure, thinned
from nppr.report.figures.subject import Subject
from nppr.types import IntArray

__all__ = ["covariances", "means"]

PANELS = 8


def means(subject: Subject) -> Drawn | None:
    """Bars of the means of the components, along the directions in which they differ."""
    draws = _described(subject)
    if draws is None or len(draws.projected) < 2:
        return None
    chosen = _heaviest(draws)
    values = draws.projected.numpy()[chosen, : len(draws.projected) - 1]
    figure = new_figure(2.4)
    axes = figure.subplots(1, len(chosen), sharey=True, sharex=True, squeeze=False)[0]
    places = np.arange(1, values.shape[1] + 1)
    look = look_of(draws.source)
    for place, component, row in zip(axes, chosen.tolist(), values, strict=True):
        place.barh(places, row, color=look.colour, height=0.75)
        place.axvline(0, color=INK, linewidth=0.6)
        place.set_title(f"{component + 1} ({_weight(draws, component)})")
        place.locator_params(axis="x", nbins=3)
        place.grid(axis="x")
    axes[0].set_ylim(values.shape[1] + 0.6, 0.4)
    axes[0].set_yticks([tick + 1 for tick in thinned(values.shape[1], 8)])
    axes[0].set_ylabel("direction")
    figure.supxlabel("mean along the direction (latent units)", fontsize=9)
    lengths = np.linalg.norm(values, axis=1)
    parts = [
        f"component {number + 1} (weight {_weight(draws, number)}) at distance {length:.2f}"
        for number, length in zip(chosen.tolist(), lengths, strict=True)
    ]
    return Drawn(
        id="means",
        title=f"Means of the components of {draws.source}",
        alt=f"Bar plots of component means along {values.shape[1]} principal directions, of the"
        f" mixture for input {int(draws.indices[0])}. From the mean of all means: {'; '.join(parts)}.",
        caption=f"One panel a component with its weight, for input {int(draws.indices[0])}."
        " Directions are those in which the means differ; the mean of all means is 0.",
        figure=figure,
    )


def covariances(subject: Subject) -> Drawn | None:
    """Heat maps of the covariances of the components along the same directions."""
    draws = _described(subject)
    if draws is None:
        return None
    chosen = _heaviest(draws)
    values = draws.covariances.numpy()[chosen]
    deviations = np.sqrt(np.maximum(np.diagonal(values, axis1=1, axis2=2), 0))
    columns = min(4, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = new_figure(0.5 + 1.85 * rows, width=1.2 + 1.5 * columns)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, component, matrix in zip(axes, chosen.tolist(), values, strict=False):
        scaled = matrix / max(float(np.abs(matrix).max()), 1e-12)
        shown = place.imshow(scaled, cmap="RdBu_r", vmin=-1, vmax=1)
        largest = float(np.sqrt(np.diagonal(matrix).max().clip(0)))
        place.set_title(f"{component + 1} ({_weight(draws, component)})\nstd up to {largest:.2g}")
        _ticks(place, matrix.shape[0])
    for place in axes[len(chosen) :]:
        place.set_axis_off()
    figure.supxlabel("direction", fontsize=9)
    bar = figure.colorbar(shown, ax=axes.tolist(), pad=0.02, fraction=0.04, ticks=[-1, 0, 1])
    bar.set_ticklabels(["-max", "0", "max"])
    bar.set_label("covariance")
    bar.outline.set_visible(False)
    return Drawn(
        id="covariances",
        title=f"Covariances of the components of {draws.source}",
        alt=f"Heat maps of {len(chosen)} covariance matrices along {values.shape[1]} directions, of"
        f" the mixture for input {int(draws.indices[0])}. Standard deviations run from"
        f" {deviations.min():.3f} to {deviations.max():.3f}; the largest entry off a diagonal is"
        f" {_off_diagonal(values):.3g}.",
        caption="One panel a component with its weight, scaled to its own largest entry. The first"
        " directions are those in which the means differ, then come those of the largest variance."
        " Colour beside the diagonal says that directions move together.",
        figure=figure,
    )


def _described(subject: Subject) -> Draws | None:
    """The first source whose mixture can be shown."""
    for draws in subject.draws:
        if draws.projected.numel() and len(draws.projected) == len(draws.covariances):
            return draws
    return None


def _heaviest(draws: Draws) -> IntArray:
    """The components of the largest weights for the first input, in their own order."""
    weights = draws.weights[0].numpy()
    found: IntArray = np.sort(np.argsort(-weights, kind="stable")[:PANELS])
    return found


def _weight(draws: Draws, component: int) -> str:
    return f"{100 * float(draws.weights[0, component]):.0f} %"


def _ticks(axes: Axes, size: int) -> None:
    places = [place for place in (0, size // 2 - 1, size - 1) if place >= 0]
    places = sorted(set(places))
    axes.set_xticks(places, [str(place + 1) for place in places])
    axes.set_yticks(places, [str(place + 1) for place in places])
    axes.spines[:].set_visible(False)


def _off_diagonal(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
    inner = np.abs(values) * (1 - np.eye(values.shape[-1]))
    return float(inner.max())
