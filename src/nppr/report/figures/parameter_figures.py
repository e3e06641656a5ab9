"""Figures of a transformation: how likely its parameters are, and what they do to the classifier.

parameters   the learned laws beside the uniform one: a curve, heat maps, or pairs of parameters
failures     the failure rate along the range of every parameter
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nppr.core.tally import FloatArray
from nppr.noise.family import FLOOR_NOISE
from nppr.report.evidence import NoiseDraws
from nppr.report.figures.figure_style import (
    BLUE,
    VERMILION,
    Drawn,
    Subject,
    flat,
    new_axes,
    new_figure,
    panel_grid,
    percent_axis,
    print_percent,
)
from nppr.search.search_record import ParameterRecord
from nppr.statistics.intervals import clopper_pearson

BINS = 40
MAP_BINS = 25
MOST_LAWS = 6
MOST_PAIRED = 5
"""Largest number of laws that are drawn, and of parameters that are paired."""


def parameters(subject: Subject) -> Drawn | None:
    """The density of the parameters under the learned laws, over that of the uniform law."""
    known = subject.report.budget.parameters
    laws = subject.draws[::-1][:MOST_LAWS]
    if not known or not laws:
        return None
    if len(known) == 1:
        return _curves(subject, known[0], laws)
    return _maps(known, laws) if len(known) == 2 else _pairs(subject, known, laws[-1])


def failures(subject: Subject) -> Drawn | None:
    """The failure rate in each bin of every parameter, with exact intervals."""
    known = subject.report.budget.parameters
    profiles = subject.evidence.profiles if subject.evidence else ()
    if not known or not profiles:
        return None
    profile, confidence = profiles[0], subject.report.settings.measure.confidence
    figure, panels = panel_grid(len(known), 3, 2.4, 0.5, share="y")
    parts = []
    for number, (axes, each) in enumerate(zip(panels, known, strict=False)):
        correct, tried = profile.correct[number].numpy(), profile.tried[number].numpy()
        failed = 1 - correct / tried
        low, high = 1 - clopper_pearson(correct, tried, confidence)[::-1]
        ends = np.linspace(each.low, each.high, len(failed) + 1)
        places = (ends[1:] + ends[:-1]) / 2
        axes.fill_between(places, low, high, color=VERMILION, alpha=0.2, linewidth=0)
        axes.plot(places, failed, color=VERMILION, marker="o", markersize=3)
        axes.set_xlabel(_axis(each))
        percent_axis(axes, "" if number else "incorrect")
        worst = int(failed.argmax())
        parts.append(
            f"{each.name}: most, {print_percent(failed[worst])}, around {places[worst]:.3g} {each.unit}"
        )
    panels[0].set_ylim(0, None)
    inputs = int(profile.tried[0, 0])
    return Drawn(
        id="failures",
        title="Failure rate by parameter",
        alt=f"Failure rate along {len(known)} parameters, on {inputs} clean-correct inputs."
        f" {'; '.join(part.strip() for part in parts)}.",
        caption=f"One draw of each of {inputs} clean-correct inputs in every bin of a range, the other"
        f" parameters uniform in theirs. The band is the exact {100 * confidence:g} % interval of each"
        " bin by itself (Clopper-Pearson).",
        figure=figure,
    )


def _shown(draws: NoiseDraws, known: Sequence[ParameterRecord]) -> FloatArray:
    """NoiseDraws `(N, P)` as parameters."""
    shares = flat(draws.many)
    low, high = (np.array([getattr(each, end) for each in known]) for end in ("low", "high"))
    values: FloatArray = (low + high) / 2 + shares * (high - low) / 2
    return values


def _axis(each: ParameterRecord) -> str:
    return f"{each.name} ({each.unit})" if each.unit else each.name


def _curves(subject: Subject, each: ParameterRecord, laws: Sequence[NoiseDraws]) -> Drawn:
    figure, axes = new_axes(3.2)
    parts = []
    for draws in laws:
        values, look = _shown(draws, [each])[:, 0], subject.look(draws.source)
        _stairs(axes, values, each, color=look.colour, linestyle=look.line, label=draws.source)
        parts.append(f"{draws.source} around {np.median(values):.3g} {each.unit}".strip())
    axes.axhline(1, color=BLUE, linewidth=1, label=FLOOR_NOISE)
    axes.set_xlabel(_axis(each))
    axes.set_ylabel("times as likely as uniform")
    axes.set_ylim(0, None)
    figure.legend(loc="outside right center")
    return _drawn(figure, "; ".join(parts), each.name)


def _maps(known: Sequence[ParameterRecord], laws: Sequence[NoiseDraws]) -> Drawn:
    figure, panels = panel_grid(len(laws), 3, 2.5, 0.4, share="xy")
    parts = []
    for axes, draws in zip(panels, laws, strict=False):
        points = _shown(draws, known)
        _map(axes, points, known)
        axes.set_title(draws.source, fontsize="small")
        middle = np.median(points, 0)
        parts.append(f"{draws.source} around ({middle[0]:.3g}, {middle[1]:.3g})")
    figure.supxlabel(_axis(known[0]), fontsize="medium")
    figure.supylabel(_axis(known[1]), fontsize="medium")
    return _drawn(figure, "; ".join(parts), f"{known[0].name} and {known[1].name}")


def _pairs(subject: Subject, known: Sequence[ParameterRecord], draws: NoiseDraws) -> Drawn:
    """Curves on the diagonal and maps below it, of the law of the widest set."""
    shown = known[:MOST_PAIRED]
    points, look = _shown(draws, known), subject.look(draws.source)
    figure = new_figure(1.5 * len(shown) + 0.4)
    panels = figure.subplots(len(shown), len(shown), squeeze=False, sharex="col")
    for row, column in itertools.product(range(len(shown)), repeat=2):
        axes, each = panels[row, column], shown[column]
        if column > row:
            axes.set_visible(False)
        elif row == column:
            _stairs(axes, points[:, row], each, color=look.colour)
            axes.axhline(1, color=BLUE, linewidth=1)
            axes.set_ylim(0, None)
        else:
            _map(axes, points[:, [column, row]], [each, shown[row]])
            if not column:
                axes.set_ylabel(_axis(shown[row]))
        if row == len(shown) - 1:
            axes.set_xlabel(_axis(each))
    middle = ", ".join(
        f"{each.name} around {value:.3g}"
        for each, value in zip(shown, np.median(points, 0), strict=False)
    )
    left = f"; {len(known) - len(shown)} more are not shown" if len(known) > len(shown) else ""
    return _drawn(figure, f"{draws.source}: {middle}", f"pairs, {draws.source}{left}")


def _stairs(axes: Axes, values: FloatArray, each: ParameterRecord, **look: str) -> None:
    """The fraction of the values in every bin of the range, over that of uniform ones."""
    counts, ends = np.histogram(values, BINS, (each.low, each.high))
    axes.stairs(counts * BINS / len(values), ends, **look)  # type: ignore[arg-type]


def _map(axes: Axes, points: FloatArray, known: Sequence[ParameterRecord]) -> None:
    """The fraction of points `(N, 2)` in every field as its shade."""
    ranges = [(each.low, each.high) for each in known]
    x, y = points.T
    axes.hist2d(x, y, bins=MAP_BINS, range=ranges, cmap="Purples", rasterized=True)


def _drawn(figure: Figure, words: str, which: str) -> Drawn:
    return Drawn(
        id="parameters",
        title=f"The worst laws found: {which}",
        alt=f"Density of the parameters under the laws found. {words}.",
        caption="How likely parameters are under the laws that the search found, over draws of several"
        " inputs. Lines are relative to the uniform law, which is the line at 1; in maps darker is"
        " likelier. A narrow peak is nearly one value. The search may have missed worse laws.",
        figure=figure,
    )
