"""Figures of the run as a whole: ladder, search, other radii, floors, and how robustness is spread.

ladder    PR, NPPR rung by rung for every structure and floor, and AR
searches  the value of each search against its calls
radii     robustness against the size of the budget, for all sources
floors    NPPR and its realised spread against the floor rho
rates     which fraction of inputs stays correct at least that often
brackets  both ends against the length of the offset
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from nppr.core.budget import Budget
from nppr.core.tally import Claim, FloatArray, Metric
from nppr.noise.family import FLOOR_NOISE
from nppr.report.brackets import Ends, brackets_of
from nppr.report.figures.figure_style import (
    BLUE,
    GREEN,
    HUES,
    INK,
    MARKERS,
    PALETTE,
    PURPLE,
    Drawn,
    RowLook,
    Subject,
    ends_of,
    interval,
    name_headlines,
    named,
    new_axes,
    new_figure,
    percent_axis,
    print_percent,
    whole_axis,
)
from nppr.report.ladder_tables import name_place, places_of, steps_of
from nppr.report.number import MERGED, Number
from nppr.report.printed_numbers import percent

STEP_APART = 0.12
"""Distance of the columns of one rung, where the rungs are 1 apart."""


def ladder(subject: Subject) -> Drawn | None:
    """One series per structure and floor down the rungs, PR before them and AR behind."""
    report, steps = subject.report, steps_of(subject.report)
    places = places_of(steps)
    if not steps:
        return None
    figure, axes = new_axes(3.4)
    said = []
    for number, place in enumerate(places):
        rows = {at: step.numbers[place] for at, step in enumerate(steps) if place in step.numbers}
        known = {at: (row, row.value) for at, row in rows.items() if row.value is not None}
        rungs = {at: value for at, (row, value) in known.items() if row.metric is Metric.NPPR}
        aside = STEP_APART * (number - (len(places) - 1) / 2)
        hue = HUES[Metric.NPPR][number % len(HUES[Metric.NPPR])]
        axes.plot([at + aside for at in rungs], list(rungs.values()), color=hue,
                  marker=MARKERS[number % len(MARKERS)], label=name_place(place))  # fmt: skip
        for at, (row, value) in known.items():
            end = at not in rungs
            x, colour = (at, subject.look(row.name).colour) if end else (at + aside, hue)
            used = row.quoted
            axes.plot([x, x], ends_of(row, used), color=colour, linewidth=3, alpha=0.5)
            if end:
                axes.plot(x, value, color=colour, marker="D")
            made = "" if end else f", {name_place(place)}"
            said.append(f"{steps[at].name}{made}: {interval(row, used)}")
    axes.set_xticks(
        range(len(steps)),
        [step.name.replace(", ", "\n").replace(" (", "\n(") for step in steps],
    )
    whole_axis(axes, "correct")
    figure.legend(loc="outside right center")
    law = report.budget.nouns.noise
    return Drawn(
        id="ladder",
        title=f"The ladder: what the {law} knows, and what it is made of",
        alt=f"Values down {len(steps)} rungs. {'; '.join(said)}.",
        caption=f"PR of the worst known {law}, NPPR rung by rung, AR; bars are the intervals. NPPR and"
        f" AR are upper bounds, and their intervals conditional on the {law} found.",
        figure=figure,
    )


def searches(subject: Subject) -> Drawn | None:
    """Values on the select split against calls: a line per search, a bar for its restarts."""
    judged = [
        (rung, rung.curve)
        for rung in subject.report.ladder
        if rung.curve and rung.dependency.is_fitted
    ]
    if not judged:
        return None
    figure, axes = new_axes(3.4)
    said = []
    for number, (rung, curve) in enumerate(judged):
        colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
        parts = len(curve.restarts) + len(curve.rounds) - 1
        calls = [
            curve.calls * (len(curve.restarts) + at) / parts for at in range(len(curve.rounds))
        ]
        label = f"{rung.dependency}, {name_place((rung.floor, rung.structure))}"
        axes.plot(calls, curve.rounds, color=colour, marker=marker, label=label)
        ends = min(curve.restarts), max(curve.restarts)
        axes.vlines(calls[0], *ends, color=colour, linewidth=3, alpha=0.5)
        values = ", ".join(map(print_percent, curve.rounds))
        end = "flat" if curve.flat else "not flat"
        restarts = ", ".join(map(print_percent, curve.restarts))
        said.append(f"{rung.name}, {curve.calls:,} calls, {end}: {values}; restarts {restarts}")
    axes.set_xlim(0, None)
    axes.set_xlabel("classifier calls of the search")
    percent_axis(axes, "correct on the select split")
    figure.legend(loc="outside right center")
    return Drawn(
        id="searches",
        title="The searches: value against calls",
        alt=f"Lines of {len(judged)} searches. {'; '.join(said)}.",
        caption="A mark is the value after a round of calls on the select split; the bar is the spread"
        " over restarts after the first round. A line that ends level is flat.",
        figure=figure,
    )


TICKS_APART = 0.06
"""Least distance between the texts of two radii, as a share of the axis."""


def radii(subject: Subject) -> Drawn | None:
    """PR, AR and NPPR at the run's own radius and at all others it measured."""
    report = subject.report
    tables = {report.budget.radius: name_headlines(report.numbers)}
    for radius, numbers in report.at_other_radii():
        tables.setdefault(radius, name_headlines(numbers))
    texts = {radius: Budget.linf(radius).radius_text for radius in tables}
    places = sorted(tables)
    known = dict.fromkeys(name for place in places for name in tables[place])
    sources = [name for name in known if name != MERGED]
    if len(places) < 2 or not sources:
        return None
    figure, axes = new_axes(3.8)
    for source in sources:
        rows = {place: tables[place][source] for place in places if source in tables[place]}
        _radius_line(axes, subject.look(source), source, rows)
    _ticks(axes, places, [texts[place] for place in places])
    axes.set_xlabel(report.budget.radius_label)
    whole_axis(axes, "PR, AR, NPPR")
    figure.legend(loc="outside right center")
    said = [
        f"{source}: "
        + ", ".join(
            f"{interval(tables[place][source])} at {texts[place]}"
            for place in places
            if source in tables[place]
        )
        for source in sources
    ]
    nouns = report.budget.nouns
    scaled = f" {nouns.scaled.format(report.budget.text)}" if report.distributions else ""
    return Drawn(
        id="radii",
        title=f"Robustness against the {nouns.radius}",
        alt=f"Lines of PR, AR and NPPR at {len(places)} {nouns.radii}. {'; '.join(said)}.",
        caption="Fraction of clean-correct inputs that stay correct, against the"
        f" {nouns.own_radius}; bands are the intervals of the report. AR and"
        f" NPPR are upper bounds.{scaled}",
        figure=figure,
    )


def _radius_line(axes: Axes, look: RowLook, source: str, rows: dict[float, Number]) -> None:
    places = list(rows)
    values = [float(row.value or 0.0) for row in rows.values()]
    low, high = zip(*map(ends_of, rows.values()), strict=True)
    metric = next(iter(rows.values())).metric.value
    axes.fill_between(places, low, high, color=look.colour, alpha=0.18, linewidth=0)
    axes.plot(places, values, color=look.colour, marker=look.marker, linestyle=look.line,
              label=f"{named(source)} ({metric})")  # fmt: skip


def _ticks(axes: Axes, places: list[float], texts: list[str]) -> None:
    """The radii as people write them; of those that are too close only the first."""
    axes.set_xlim(0, places[-1] * 1.04)
    kept: list[int] = []
    for number, place in enumerate(places):
        if not kept or (place - places[kept[-1]]) / places[-1] >= TICKS_APART:
            kept.append(number)
    axes.set_xticks([places[number] for number in kept], [texts[number] for number in kept])
    axes.set_xticks(np.asarray(places), minor=True)


def floors(subject: Subject) -> Drawn | None:
    """NPPR at every floor that was fitted; rho = 1 is Uniform noise, shown where it was measured."""
    rows = name_headlines(subject.report.numbers)
    found = {
        each.family.floor: (rows[each.name], each.diagnostics.realised_std)
        for each in subject.learned
        if each.name in rows
    }
    if len(found) < 2:
        return None
    places = sorted(found)
    figure = new_figure(4.2, width=5.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.plot(places, [found[place][0].value for place in places], color=INK, linewidth=0.8)
    for place in places:
        _point(above, place, found[place][0], subject)
    uniform = rows.get(FLOOR_NOISE)
    if uniform is not None and 1.0 not in found:
        _point(above, 1.0, uniform, subject)
        above.annotate("Uniform (PR)", (1.0, uniform.value or 0.0), xytext=(-8, -4),
                       textcoords="offset points", ha="right", va="top", fontsize=8)  # fmt: skip
    whole_axis(above, "NPPR")
    spreads = {place: found[place][1] for place in places}
    nouns = subject.report.budget.nouns
    _spread(below, spreads)
    said = [
        f"floor {place:g}: NPPR {interval(found[place][0])}, realised standard deviation"
        f" {spreads[place]:.2f}"
        for place in places
    ]
    if uniform is not None:
        said.append(f"Uniform {nouns.noise}: PR {interval(uniform)}")
    return Drawn(
        id="floors",
        title="NPPR against the floor of randomness",
        alt=f"NPPR at {len(places)} floors. {'; '.join(said)}.",
        caption=nouns.floor_meaning,
        figure=figure,
    )


def _point(axes: Axes, place: float, row: Number, subject: Subject) -> None:
    look = subject.look(row.name)
    value = float(row.value or 0.0)
    axes.plot([place, place], ends_of(row), color=look.colour, linewidth=3, alpha=0.5)
    axes.plot(place, value, color=look.colour, marker=look.marker, markersize=6)


def _spread(axes: Axes, spreads: dict[float, float]) -> None:
    axes.plot(list(spreads), list(spreads.values()), color=INK, marker="o", linestyle="--")
    axes.set_ylim(0, max([0.6, *(1.1 * value for value in spreads.values())]))
    axes.set_xlim(-0.03, 1.05)
    axes.set_ylabel("realised std")
    axes.set_xlabel("floor rho (weight of the uniform part)")
    axes.grid(axis="y")


RATE_GRID = 101


def rates(subject: Subject) -> Drawn | None:
    """For every noise, the fraction of inputs whose fraction of correct draws is at least t."""
    if subject.per_input is None:
        return None
    known = name_headlines(subject.report.numbers)
    grid: FloatArray = np.linspace(0, 1, RATE_GRID)
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
    figure, axes = new_axes(3.4)
    for source, line in lines.items():
        look = subject.look(source)
        axes.plot(grid, line, color=look.colour, linestyle=look.line, marker=look.marker,
                  markevery=20, label=named(source))  # fmt: skip
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
    axes.set_xlabel("correct draws per input, at least")
    whole_axis(axes, "inputs")
    figure.legend(loc="outside right center")
    said = [
        f"{source}: {print_percent(float(line[RATE_GRID // 2]))} of inputs are correct in at least half"
        f" of the draws, {print_percent(float(line[-1]))} in all"
        for source, line in lines.items()
    ]
    return Drawn(
        id="rates",
        title="Inputs by how often they stay correct",
        alt=f"Curves of the fraction of inputs that stay correct that often. {'; '.join(said)}.",
        caption="A curve that falls early has inputs that the source always breaks; the area under a"
        " curve is the source's PR or NPPR.",
        figure=figure,
    )


def brackets(subject: Subject) -> Drawn | None:
    """Both ends against R / sigma: a band for this test set, dashed lines for the population."""
    found = brackets_of(subject.report)
    if not found:
        return None
    figure, axes = new_axes(3.6)
    for claim, line in ((Claim.TEST_SET, "-"), (Claim.POPULATION, "--")):
        ends = [(each.steps, each.ends[claim]) for each in found if claim in each.ends]
        if ends:
            _draw_band(axes, ends, line, claim)
    observed = [each.any_ends.at_most.value or 0.0 for each in found]
    axes.plot([each.steps for each in found], observed, color=INK, marker="x", linestyle="",
              label="worst offset found")  # fmt: skip
    start = subject.report.headline(found[0].any_ends.at_least.source, Metric.PR)  # no offset
    if start is not None and start.value is not None:
        axes.plot([0, 0], ends_of(start), color=BLUE, linewidth=3, alpha=0.5)
        axes.plot(0, start.value, color=BLUE, marker="D", linestyle="", label="no offset (PR)")
    axes.set_xlabel(f"longest offset, R / sigma (sigma {found[0].sigma:g})")
    axes.set_xlim(-0.03 * found[-1].steps, found[-1].steps * 1.05)
    percent_axis(axes, "correct")
    figure.legend(loc="outside right center")
    said = [
        f"R / sigma {each.steps:.4g}: "
        + ", ".join(
            f"at least {percent(ends.low, 'at-least')} % and at most"
            f" {percent(ends.high, 'at-most')} % for {claim.value}"
            for claim, ends in each.ends.items()
        )
        for each in found
    ]
    return Drawn(
        id="brackets",
        title="At least and at most, against the offset",
        alt=f"Brackets at {len(found)} lengths of the offset. {'; '.join(said)}.",
        caption=f"Gaussian noise of standard deviation {found[0].sigma:g} plus any offset of l2 length"
        ' up to R. No offset leaves less correct than "at least". The offsets found for each input'
        ' leave no more than "at most". The lines between the measured radii only guide the eye.',
        figure=figure,
    )


def _draw_band(axes: Axes, ends: Sequence[tuple[float, Ends]], line: str, claim: Claim) -> None:
    steps = [at for at, _ in ends]
    low, high = [each.low for _, each in ends], [each.high for _, each in ends]
    if claim is Claim.TEST_SET:
        axes.fill_between(steps, low, high, color=PURPLE, alpha=0.15, linewidth=0)
        axes.vlines(steps, low, high, color=PURPLE, linewidth=3, alpha=0.4)
    for values, colour, name in ((high, PURPLE, "at most"), (low, GREEN, "at least")):
        axes.plot(steps, values, color=colour, linestyle=line, marker="_", markersize=8,
                  label=f"{name}, {claim.value}")  # fmt: skip
