"""How robustness is spread over inputs: which share of them stays right at least so often."""

from __future__ import annotations

import numpy as np

from nppr.report.figures.drawn import Drawn
from nppr.report.figures.style import look_of, named, new_figure, percent_axis
from nppr.report.figures.subject import Subject, headlines, percent
from nppr.types import FloatArray, Metric

__all__ = ["rates"]

GRID = 101


def rates(subject: Subject) -> Drawn | None:
    """For every noise, the share of inputs whose share of right draws is at least t."""
    if subject.per_input is None:
        return None
    known = headlines(subject.report.results)
    grid: FloatArray = np.linspace(0, 1, GRID)
    lines: dict[str, FloatArray] = {}
    for source in subject.per_input.sources:
        rows = subject.per_input.of(source)
        if source not in known or known[source].metric is Metric.AR or rows["draws"].max() < 2:
            continue
        found = rows["rate"][rows["clean_correct"] == 1]
        if len(found):
            lines[source] = (found[None, :] >= grid[:, None] - 1e-9).mean(1)
    if not lines:
        return None
    figure = new_figure(3.4)
    axes = figure.subplots()
    for source, line in lines.items():
        look = look_of(source)
        axes.plot(grid, line, color=look.colour, linestyle=look.line, marker=look.marker,
                  markevery=20, label=named(source))  # fmt: skip
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("right draws of an input, at least")
    axes.set_ylabel("inputs")
    axes.set_ylim(-0.02, 1.02)
    percent_axis(axes)
    figure.legend(loc="outside right center")
    said = [
        f"{source}: {percent(float(line[GRID // 2]))} of inputs are right in at least half of the"
        f" draws, {percent(float(line[-1]))} in all"
        for source, line in lines.items()
    ]
    return Drawn(
        id="rates",
        title="Inputs by how often they stay right",
        alt=f"Curves of the share of inputs that stay right at least so often. {'; '.join(said)}.",
        caption="A curve that falls early has inputs that the noise always breaks; the area under a"
        " curve is the source's PR or NPPR.",
        figure=figure,
    )
