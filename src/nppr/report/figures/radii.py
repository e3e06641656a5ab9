"""Robustness against the size of the budget, for all sources."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from nppr.report.figures.drawn import Drawn
from nppr.report.figures.style import look_of, named, new_figure, percent_axis
from nppr.report.figures.subject import Subject, headlines, interval
from nppr.report.schema import Result

__all__ = ["radii"]

MERGED = "merged"
"""The row of all sources together, which is known at the radius of the run alone."""

TICKS_APART = 0.06
"""Least distance between the texts of two radii, as a share of the axis."""


def radii(subject: Subject) -> Drawn | None:
    """PR, AR and NPPR at the run's own radius and at all others it measured."""
    report = subject.report
    tables = {float(report.budget["radius"]): (report.budget["text"], headlines(report.results))}
    for other in report.radii:
        tables.setdefault(other.radius, (other.text, headlines(other.results)))
    places = sorted(tables)
    known = dict.fromkeys(name for place in places for name in tables[place][1])
    sources = [name for name in known if name != MERGED]
    if len(places) < 2 or not sources:
        return None
    figure = new_figure(3.8)
    axes = figure.subplots()
    for source in sources:
        rows = {place: tables[place][1].get(source) for place in places}
        _line(axes, source, {place: row for place, row in rows.items() if row is not None})
    _ticks(axes, places, [tables[place][0] for place in places])
    axes.set_xlabel(f"radius ({report.budget['norm']})")
    axes.set_ylabel("PR, AR, NPPR")
    axes.set_ylim(-0.02, 1.02)
    percent_axis(axes)
    figure.legend(loc="outside right center")
    said = [
        f"{source}: "
        + ", ".join(
            f"{interval(tables[place][1][source])} at {tables[place][0]}"
            for place in places
            if source in tables[place][1]
        )
        for source in sources
    ]
    scaled = (
        f" Learned noise is that of radius {report.budget['text']}, scaled: a fit at the other radius"
        " may find worse."
    )
    return Drawn(
        id="radii",
        title="Robustness against the radius",
        alt=f"Lines of PR, AR and NPPR at {len(places)} radii. {'; '.join(said)}.",
        caption="Share of inputs, right without noise, that stay right, against the radius of the"
        " budget; bands are the intervals of the report. AR and NPPR are upper bounds."
        + (scaled if report.distributions else ""),
        figure=figure,
    )


def _line(axes: Axes, source: str, rows: dict[float, Result]) -> None:
    look = look_of(source)
    places = list(rows)
    values = [float(row.value or 0.0) for row in rows.values()]
    low = [
        value if row.low is None else row.low
        for row, value in zip(rows.values(), values, strict=True)
    ]
    high = [
        value if row.high is None else row.high
        for row, value in zip(rows.values(), values, strict=True)
    ]
    metric = next(iter(rows.values())).metric.value
    axes.fill_between(places, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axes.plot(places, values, color=look.colour, marker=look.marker, linestyle=look.line,
              label=f"{named(source)} ({metric})")  # fmt: skip


def _ticks(axes: Axes, places: list[float], texts: list[str]) -> None:
    """The radii as people write them; of those that stand too close only the first."""
    axes.set_xlim(0, places[-1] * 1.04)
    kept: list[int] = []
    for number, place in enumerate(places):
        if not kept or (place - places[kept[-1]]) / places[-1] >= TICKS_APART:
            kept.append(number)
    axes.set_xticks([places[number] for number in kept], [texts[number] for number in kept])
    axes.set_xticks(np.asarray(places), minor=True)
