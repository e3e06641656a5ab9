"""The figure of brackets: both ends against the length of the offset."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from nppr.core.tally import Claim, Metric
from nppr.report.brackets import Bracket, Ends, brackets_of
from nppr.report.figures.figure_style import (
    BLUE,
    GREEN,
    INK,
    PURPLE,
    Drawn,
    Subject,
    ends_of,
    new_figure,
    percent_axis,
)
from nppr.report.model import ReportRecord
from nppr.report.number import Number
from nppr.report.printed_numbers import percent


def brackets(subject: Subject) -> Drawn | None:
    """Both ends against R / sigma: a band for this test set, dashed lines for the population."""
    found = brackets_of(subject.report)
    if not found:
        return None
    figure = new_figure(3.6)
    axes = figure.subplots()
    for claim, line in ((Claim.TEST_SET, "-"), (Claim.POPULATION, "--")):
        ends = [(each.steps, each.ends[claim]) for each in found if claim in each.ends]
        if ends:
            _draw_band(axes, ends, line, claim)
    observed = [next(iter(each.ends.values())).at_most.value or 0.0 for each in found]
    axes.plot([each.steps for each in found], observed, color=INK, marker="x", linestyle="",
              label="worst offset found")  # fmt: skip
    start = _without_offset(subject.report, found[0])
    if start is not None:
        axes.plot([0, 0], ends_of(start), color=BLUE, linewidth=3, alpha=0.5)
        axes.plot(
            0, start.value or 0.0, color=BLUE, marker="D", linestyle="", label="no offset (PR)"
        )
    axes.set_xlabel(f"longest offset, R / sigma (sigma {found[0].sigma:g})")
    axes.set_ylabel("correct")
    axes.set_xlim(-0.03 * found[-1].steps, found[-1].steps * 1.05)
    percent_axis(axes)
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


def _without_offset(report: ReportRecord, bracket: Bracket) -> Number | None:
    """Return PR under the noise of a bracket."""
    source = next(iter(bracket.ends.values())).at_least.source
    row = report.headline(source, Metric.PR)
    return row if row is not None and row.value is not None else None
