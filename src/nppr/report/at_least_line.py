"""The line that states the lower bound, the noise that it covers, and how little that may be.

A density ratio of 10 is little in many dimensions: it is 10^(1/D) per coordinate. So the line also
states the smallest box (or l2 ball) whose uniform noise is covered.
"""

from __future__ import annotations

import math

from nppr.noise.family import FLOOR_NOISE
from nppr.report.findings import bounds_of
from nppr.report.model import ReportRecord
from nppr.report.number import BoundSubject, Number
from nppr.report.printed_numbers import Numbers
from nppr.statistics.noise_sets import RATIO


def stated_bound(report: ReportRecord) -> Number | None:
    """Return the bound of the line: the largest density ratio with a bound above 0, else the first.

    Noise of its set may see the input, if there is such a bound.
    """
    found = sorted(bounds_of(report), key=lambda row: not (row.bound and row.bound.sees_input))
    ratios = {
        row.bound.density_ratio or 0.0: row
        for row in reversed(found)
        if row.bound and row.bound.noise_set == RATIO and row.bound.sees_input and row.value
    }
    return ratios[max(ratios)] if ratios else next(iter(found), None)


def at_least_line(numbers: Numbers, row: Number, kind: type[str] = str) -> str:
    """Return the bound in plain words, for whom it holds, and what it covers.

    `kind` is Markup on a page.
    """
    report, bound = numbers.report, row.bound
    assert bound is not None
    text = kind("{} under {}, for {}").format(
        numbers.claim(row, kind=kind),
        covered_noise(report, bound),
        row.own.claim.value if row.own else "",
    )
    if row.population is not None:
        population = numbers.of(row, "low", row.population)
        text += kind("; for the population: at least {} %").format(population)
    shared = next((other for other in bounds_of(report) if _same_set(bound, other)), None)
    if shared is not None:
        text += kind("; if the {} does not see the input: at least {} %").format(
            report.budget.nouns.noise, numbers.of(shared)
        )
    return text + "." + "".join(f" {each}" for each in [coverage(report, bound)] if each)


def covered_noise(report: ReportRecord, bound: BoundSubject) -> str:
    """Name the noise, or the laws of the parameters, that a bound holds for."""
    return f"{report.budget.nouns.every_noise} {noise_words(report, bound)}"


def noise_words(report: ReportRecord, bound: BoundSubject) -> str:
    """Describe the set of noise; the words follow "all noise" or "every law of the parameters"."""
    assert bound.bounded is not None
    sight = "that does not see the input and " if bound.sees_input is False else ""
    return sight + bound.bounded.words(report.budget.nouns.refer_to(bound.reference))


def coverage(report: ReportRecord, bound: BoundSubject) -> str:
    """State what a density ratio means for the dimension of the inputs; empty for other sets."""
    c, dimensions = bound.density_ratio, math.prod(report.data.shape)
    if c is None or c <= 1:
        return ""
    if report.budget.parameters:
        uniform = bound.reference == FLOOR_NOISE and bound.noise_set == RATIO
        return _volume(c, len(report.budget.parameters)) if uniform else ""
    each = math.log(c) / dimensions
    per = f"{_near_1(math.exp(each))} times per coordinate"
    text = f"In {dimensions:,} dimensions {c:.15g} times is {per}"
    if bound.reference != FLOOR_NOISE:
        return f"{text}."
    return (
        f"{text}: uniform noise in a {report.budget.nouns.region} of {_near_1(math.exp(-each))} of the"
        " radius is covered, in a smaller one it is not, and Gaussian noise, clipped at the edge"
        " of the budget, never is."
    )


def _volume(c: float, parameters: int) -> str:
    """State what a density ratio means for the parameters of a transformation."""
    part = f"{100 / c:.3g} %"
    if parameters == 1:
        return f"The set covers uniform parameters in any {part} of the range, not in less."
    each = 100 * math.exp(-math.log(c) / parameters)
    return (
        f"The set covers uniform parameters in any {part} of the volume of the box, such as"
        f" {each:.0f} % of each of the {parameters} ranges; if each of {parameters} independent"
        f" parameters may be {c:.15g} times as likely, the joint ratio is {c:.15g}^{parameters}, which"
        " is not covered."
    )


def _near_1(x: float) -> str:
    """Print a number with the digits that distinguish it from 1.

    >>> _near_1(0.99925), _near_1(1.0366)
    ('0.99925', '1.037')
    """
    digits = max(3, 1 - math.floor(math.log10(max(abs(x - 1), 1e-15))))
    return f"{x:.{digits}f}"


def _same_set(bound: BoundSubject, row: Number) -> bool:
    """Whether a number is the bound of the same set for noise that does not see the input."""
    other = row.bound
    if other is None or other.sees_input is not False or bound.sees_input is False:
        return False
    return other.bounded == bound.bounded and other.reference == bound.reference
