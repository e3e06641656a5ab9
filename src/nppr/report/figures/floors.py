"""How random the worst noise must be: NPPR and its realised spread against the floor rho."""

from __future__ import annotations

from matplotlib.axes import Axes

from nppr.report.figures.drawn import Drawn
from nppr.report.figures.style import INK, look_of, new_figure, percent_axis
from nppr.report.figures.subject import Subject, headlines, interval
from nppr.report.schema import Result

__all__ = ["floors"]

UNIFORM = "uniform"


def floors(subject: Subject) -> Drawn | None:
    """NPPR at every floor that was fitted; rho = 1 is Uniform noise, shown where it was measured."""
    rows = headlines(subject.report.results)
    found = {
        float(each["family"]["floor"]): (rows[each["source"]], each["source"], each["diagnostics"])
        for each in subject.learned
        if each["source"] in rows
    }
    if len(found) < 2:
        return None
    places = sorted(found)
    figure = new_figure(4.2, width=5.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.plot(places, [found[place][0].value for place in places], color=INK, linewidth=0.8)
    for place in places:
        _point(above, place, found[place][0], found[place][1])
    uniform = rows.get(UNIFORM)
    if uniform is not None and 1.0 not in found:
        _point(above, 1.0, uniform, UNIFORM)
        above.annotate("Uniform (PR)", (1.0, uniform.value or 0.0), xytext=(-8, -4),
                       textcoords="offset points", ha="right", va="top", fontsize=8)  # fmt: skip
    above.set_ylabel("NPPR")
    above.set_ylim(-0.02, 1.02)
    percent_axis(above)
    spreads = {
        place: float(found[place][2]["realised_std"])
        for place in places
        if found[place][2].get("realised_std") is not None
    }
    _spread(below, spreads)
    said = [
        f"floor {place:g}: NPPR {interval(found[place][0])}"
        + (f", realised standard deviation {spreads[place]:.2f}" if place in spreads else "")
        for place in places
    ]
    if uniform is not None:
        said.append(f"Uniform noise: PR {interval(uniform)}")
    return Drawn(
        id="floors",
        title="NPPR against the floor of randomness",
        alt=f"NPPR at {len(places)} floors. {'; '.join(said)}.",
        caption="The floor rho is the share of Uniform noise in every draw: 0 admits one fixed pattern"
        " an input, 1 is Uniform noise. Below, the realised standard deviation in radii.",
        figure=figure,
    )


def _point(axes: Axes, place: float, row: Result, source: str) -> None:
    look = look_of(source)
    value = float(row.value or 0.0)
    low = value if row.low is None else row.low
    high = value if row.high is None else row.high
    axes.plot([place, place], [low, high], color=look.colour, linewidth=3, alpha=0.5)
    axes.plot(place, value, color=look.colour, marker=look.marker, markersize=6)


def _spread(axes: Axes, spreads: dict[float, float]) -> None:
    axes.plot(list(spreads), list(spreads.values()), color=INK, marker="o", linestyle="--")
    axes.set_ylim(0, max([0.6, *(1.1 * value for value in spreads.values())]))
    axes.set_xlim(-0.03, 1.05)
    axes.set_ylabel("realised std")
    axes.set_xlabel("floor rho (share of Uniform noise)")
    axes.grid(axis="y")
