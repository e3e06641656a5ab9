"""The fit as it went: loss and share of right draws, one stage after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from nppr.report.figures.drawn import Drawn
from nppr.report.figures.style import BLUE, INK, VERMILION, named, new_figure, percent_axis
from nppr.report.figures.subject import Subject, percent
from nppr.types import FloatArray

__all__ = ["history"]

POINTS = 600
"""Points of all stages together, about: longer stages are averaged in blocks."""


def history(subject: Subject) -> Drawn | None:
    """Two panels over the steps of all stages; each stage counts once, in the order of the fits."""
    stages = _stages(subject.learned)
    if not stages:
        return None
    edges = np.cumsum([0, *(len(stage["loss"]) for stage in stages)])
    figure = new_figure(4.0)
    above, below = figure.subplots(2, 1, sharex=True)
    block = max(1, int(edges[-1]) // POINTS)
    for number, stage in enumerate(stages):
        start = int(edges[number])
        _line(above, start, stage["loss"], block, BLUE)
        _line(below, start, stage["running_pr"], block, VERMILION)
        if number % 2:
            for axes in (above, below):
                axes.axvspan(start, int(edges[number + 1]), color=INK, alpha=0.06, linewidth=0)
    _names(above, stages, edges)
    above.set_ylabel("loss")
    above.grid(axis="y")
    below.set_ylabel("right draws of a step")
    below.set_xlabel("step of the fit")
    below.set_ylim(-0.02, 1.02)
    percent_axis(below)
    above.set_xlim(0, max(1, int(edges[-1])))
    parts = [
        f"{stage['stage']}, {len(stage['loss'])} steps: loss {stage['loss'][0]:.2f} to"
        f" {stage['loss'][-1]:.2f}, right draws {percent(stage['running_pr'][0])} to"
        f" {percent(stage['running_pr'][-1])}"
        for stage in stages
    ]
    return Drawn(
        id="history",
        title="The fit, stage by stage",
        alt=f"Loss and share of right draws over {edges[-1]} steps. {'; '.join(parts)}.",
        caption="Each stage starts from the one it contains; shading marks every other stage. Values"
        " are those of relaxed draws on the fit part, not the reported ones.",
        figure=figure,
    )


def _stages(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stages of all fits that ran any step, each once."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        for stage in (entry.get("fit") or {}).get("stages") or []:
            if stage.get("loss") and len(stage["loss"]) == len(stage.get("running_pr") or []):
                found.setdefault(stage["stage"], stage)
    return list(found.values())


def _line(axes: Axes, start: int, values: Sequence[float], block: int, colour: str) -> None:
    series: FloatArray = np.asarray(values, dtype=np.float64)
    pieces = [series[at : at + block] for at in range(0, len(series), block)]
    steps = start + 0.5 + np.arange(len(pieces)) * block
    marker = "o" if len(pieces) < 4 else ""
    axes.plot(steps, [piece.mean() for piece in pieces], color=colour, marker=marker, markersize=3)


def _names(axes: Axes, stages: Sequence[dict[str, Any]], edges: np.ndarray[Any, Any]) -> None:
    """The stages above the panel, slanted so that short ones do not meet."""
    for number, stage in enumerate(stages):
        middle = (edges[number] + edges[number + 1]) / 2
        axes.annotate(named(stage["stage"]), (middle, 1.0), xycoords=("data", "axes fraction"),
                      xytext=(0, 3), textcoords="offset points", rotation=25, fontsize=8,
                      ha="left", va="bottom", rotation_mode="anchor")  # fmt: skip
