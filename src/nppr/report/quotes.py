"""Sentences to quote: what may be claimed of a number, and the line that states the lower bound.

A density ratio of 10 is little in many dimensions: it is 10^(1/D) per coordinate. So that line also
states the smallest box (or l2 ball) whose uniform noise is covered.
"""

from __future__ import annotations

import math

from nppr.core.radius import parse_radius
from nppr.core.tally import Claim, Metric
from nppr.noise.family import FLOOR_NOISE
from nppr.report.findings import bounds_of, table_rows
from nppr.report.model import ReportRecord
from nppr.report.number import SPLITTING, BoundSubject, MergedSubject, Number, StatedInterval
from nppr.report.printed_numbers import Numbers
from nppr.statistics.noise_sets import RATIO

_STAY = "the fraction of inputs that stay correct is"
_DRAWS = "the fraction of correct draws is"
_SENTENCES = {
    Metric.ACCURACY: "Without {nouns.disturbance}, the fraction of correct answers is",
    Metric.PR: f"Under {{noise}} {{nouns.drawn}}, {_DRAWS}",
    Metric.NPPR: f"Under the worst admissible {{nouns.noise_in_full}} ({{noise}}), {_DRAWS}",
    Metric.AR: f"Under the worst {{nouns.admitted_change}} (tried: {{noise}}), {_STAY}",
    Metric.CORRUPTION: f"Under the corruption {{noise}}, {_STAY}",
    Metric.BOUND: f"Under {{noise}}, {_DRAWS}",
    Metric.STRESS: "Under {noise}, the loss is",
    Metric.NORMALISED_STRESS: "Under {noise}, the loss over the clean loss is",
    Metric.NORMALISED_ACCURACY: "Under {noise}, accuracy over all inputs / clean accuracy is",
    Metric.PROB_ACC: (
        "Under {noise}, the fraction of inputs with more than {least:g} % of their draws correct is"
    ),
}

_SCALED = f"Under {{noise}}, which need not be the worst there, {_DRAWS}"
"""Of learned noise at another radius than the one it was searched for at."""

_ALL_INPUTS = (Metric.ACCURACY, Metric.NORMALISED_ACCURACY)
"""Metrics that are not of the clean-correct inputs alone; losses are not either."""

Quote = tuple[Number, StatedInterval | None]
"""A number and the interval to quote it with."""


def quoted_rows(report: ReportRecord) -> tuple[list[Quote], list[Quote]]:
    """Return the numbers of the table, and all other numbers of the report."""
    shown: list[Quote] = [(row, row.shown) for row in table_rows(report) if row.value is not None]
    known = {(id(row), id(interval)) for row, interval in shown}
    others: list[Quote] = [
        (row, interval)
        for row in (*report.numbers, *report.other_radii)
        if row.metric in _SENTENCES and row.value is not None and not row.with_references
        # A bound has a sentence for each claim.
        for interval in ((row.own, row.population) if row.is_lower_bound else (row.shown,))
        if interval is not None and (id(row), id(interval)) not in known
    ]
    return shown, others


def sentence_of(
    numbers: Numbers, row: Number, interval: StatedInterval | None = None, kind: type[str] = str
) -> str:
    """Return the sentence on a number, with its scope; `kind` is Markup on a page."""
    report, used = numbers.report, interval or row.shown
    assert used is not None
    scaled = row.learned is not None and row.radius != report.budget.radius
    start = kind(_SCALED if scaled else _SENTENCES[row.metric]).format(
        noise=noise_of(report, row),
        least=100 * (1 - (row.gamma or 0.0)),
        nouns=report.budget.nouns,
    )
    everything = row.metric in _ALL_INPUTS or row.metric.is_loss
    counted = "inputs" if everything else "clean-correct inputs"
    return kind("{} {}: {} on {}{}; {}{} {}{}; {}; {}.").format(
        start,
        numbers.claim(row, used, kind=kind),
        report.classifier.name,
        report.data.name,
        f", {report.budget.at(row.radius, radius_text(report, row.radius))}" if row.radius else "",
        f"correct if {report.data.task}; " if report.data.task else "",
        numbers.of(row, "inputs"),
        counted,
        kind(", {} draws each").format(numbers.of(row, "draws")) if row.draws > 1 else "",
        "the population they were drawn from" if used.claim is Claim.POPULATION else used.claim,
        f"{used.method}{', outside its tested regime' if used.is_untested else ''}"
        + (", an indication" if used.method == SPLITTING else "")
        + (
            f", corrected for the choice of the lowest of {used.lowest_of}"
            if used.lowest_of
            else ""
        ),
    )


def noise_of(report: ReportRecord, row: Number) -> str:
    """Name the noise that a number is of; of learned noise also the admissible set."""
    nouns = report.budget.nouns
    if row.bound is not None and row.is_lower_bound:
        return covered_noise(report, row.bound)
    if row.bound is not None:
        return f"{nouns.noises} {noise_words(report, row.bound)}"
    if isinstance(row.subject, MergedSubject):
        return f"the attacks and {nouns.noises} that were tried, together"
    if row.learned is None or row.learned.admissible is None:
        return row.name
    words = row.learned.admissible.describe(nouns)
    scaled = row.radius != report.budget.radius
    where = f", found {nouns.found_at} {report.budget.text} and scaled" if scaled else ""
    return f"{row.name}, {words}, rho {row.learned.floor:g}{where}"


def radius_text(report: ReportRecord, radius: float) -> str:
    """A radius of the run as people write it."""
    texts = {parse_radius(text): text for text in report.settings.measure.radii}
    texts[report.budget.radius] = report.budget.text
    return texts.get(radius, f"{radius:g}")


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
