"""Brackets: a lower and an upper end under Gaussian noise with the worst offset of length up to R.

The lower end is a bound (`Metric.BOUND`). The upper end comes from the worst offset that was found
(`Metric.NPPR`). Both are numbers of the report, for the same set of noise and the same claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nppr.core.tally import Claim, Metric
from nppr.report.model import ReportRecord
from nppr.report.number import Number, StatedInterval
from nppr.report.printed_numbers import Numbers, PrintedNumber
from nppr.report.tables import EMPTY, Cell, Column, Table
from nppr.statistics.noise_sets import Offset


@dataclass(frozen=True)
class Ends:
    """Both ends for one claim: the number of each, and the interval that states it."""

    at_least: Number
    least: StatedInterval
    at_most: Number
    most: StatedInterval

    @property
    def low(self) -> float:
        return self.least.low

    @property
    def high(self) -> float:
        return self.most.high

    def printed(self, numbers: Numbers) -> tuple[str | PrintedNumber, str | PrintedNumber]:
        """Both ends as they are printed."""
        low = numbers.of(self.at_least, "low", self.least)
        return low, numbers.of(self.at_most, "high", self.most)

    def text(self, numbers: Numbers, kind: type[str] = str) -> str:
        """The bracket as it is printed; `kind` is Markup on a page.

        "[at least 61.3 %, at most 74.0 %]"
        """
        form = "[at least {} %, at most {} %]"
        form = form if kind is str else form.replace(" %", "&nbsp;%")
        return kind(form).format(*self.printed(numbers))


@dataclass(frozen=True)
class Bracket:
    """Both ends by claim for one radius: offsets up to `steps` standard deviations `sigma`."""

    sigma: float
    steps: float
    ends: Mapping[Claim, Ends]

    @property
    def any_ends(self) -> Ends:
        """The ends of the first claim."""
        return next(iter(self.ends.values()))

    @property
    def radius(self) -> str:
        """The longest offset, as people write it."""
        return f"{self.steps * self.sigma:.6g}"

    @property
    def noise(self) -> str:
        """The noise in words."""
        return (
            f"Gaussian noise of standard deviation {self.sigma:g} per pixel plus any offset of l2"
            f" length up to {self.radius} ({self.steps:.4g} sigma), which may depend on the input"
        )


def brackets_of(report: ReportRecord) -> list[Bracket]:
    """Return all brackets that have both ends, the shortest offset first."""
    sigmas = {row.name: row.options.get("sigma") for row in report.settings.sources}
    found: dict[tuple[str, float], dict[Claim, dict[Metric, tuple[Number, StatedInterval]]]] = {}
    for row in report.numbers:
        offset = row.bound.bounded if row.bound else None
        if not isinstance(offset, Offset):
            continue
        for interval in row.intervals:
            ends = found.setdefault((row.source, offset.size), {})
            ends.setdefault(interval.claim, {}).setdefault(row.metric, (row, interval))
    brackets = []
    for (source, steps), claims in found.items():
        both = {
            claim: Ends(*ends[Metric.BOUND], *ends[Metric.NPPR])
            for claim, ends in claims.items()
            if {Metric.BOUND, Metric.NPPR} <= ends.keys()
        }
        if Claim.TEST_SET in both:
            brackets.append(Bracket(float(sigmas.get(source) or 1.0), steps, both))
    return sorted(brackets, key=lambda each: each.steps)


def quoted_bracket(report: ReportRecord) -> Bracket | None:
    """Return the bracket whose offset is as long as the budget's radius, else the longest."""
    found, radius = brackets_of(report), report.budget.radius
    near = [each for each in found if abs(each.steps * each.sigma - radius) < 1e-9]
    return next(iter(near or found[-1:]), None)


def bracket_sentence(numbers: Numbers, bracket: Bracket, kind: type[str] = str) -> str:
    """Return the bracket of each claim and its noise, in one sentence."""
    texts = {claim: ends.text(numbers, kind) for claim, ends in bracket.ends.items()}
    other = texts.get(Claim.POPULATION)
    return kind(
        "{} of the draws are correct on this test set{}, under the worst noise of this kind: {}."
    ).format(
        texts[Claim.TEST_SET],
        kind(" ({} in the population)").format(other) if other else "",
        bracket.noise,
    )


def bracket_scope(numbers: Numbers, bracket: Bracket, kind: type[str] = str) -> str:
    """Return the inputs, draws and confidence of a bracket, in one sentence."""
    row = bracket.ends[Claim.TEST_SET].at_least
    return kind(
        "{} clean-correct inputs, {} draws each; both ends of the brackets of all radii hold together"
        " for each claim, with {} % confidence."
    ).format(*(numbers.of(row, name) for name in ("inputs", "draws", "confidence")))


_CLAIMS = {Claim.TEST_SET: "test_set", Claim.POPULATION: "population"}


def bracket_table(report: ReportRecord) -> Table:
    """Return both ends by radius, smallest first; its JSON is that of `nppr bracket`."""
    numbers = Numbers(report)
    columns = (
        Column("radius", "R", number=True),
        Column("steps", "R / sigma", number=True),
        *(
            Column(name, f"{claim.value}:\n[at least, at most] %", number=True, interval=True)
            for claim, name in _CLAIMS.items()
        ),
        Column("observed", "observed %", number=True),
        Column("calls", "calls", number=True, terminal=None),
    )
    rows = []
    for each in brackets_of(report):
        first = each.any_ends.at_most
        rows.append(
            (
                Cell(each.steps * each.sigma, each.radius),
                Cell(each.steps, f"{each.steps:.4g}"),
                *(_ends_cell(numbers, each.ends.get(claim)) for claim in _CLAIMS),
                Cell.made_of(first.value, numbers.of(first)),
                Cell.made_of(first.calls, numbers.of(first, "calls")),
            )
        )
    return Table("", columns, tuple(rows))


def _ends_cell(numbers: Numbers, ends: Ends | None) -> Cell:
    if ends is None:
        return EMPTY
    low, high = ends.printed(numbers)
    return Cell.made_of((ends.low, ends.high), "[", low, ", ", high, "]")
