"""A sentence to quote for every number: what may be claimed, of what, on which inputs, how surely."""

from __future__ import annotations

from nppr.core.tally import Claim, Metric
from nppr.report.at_least_line import covered_noise, noise_words
from nppr.report.findings import table_rows
from nppr.report.model import ReportRecord
from nppr.report.number import SPLITTING, MergedSubject, Number, StatedInterval
from nppr.report.printed_numbers import Numbers
from nppr.report.results_table import radius_text

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
    sentence = _SENTENCES[row.metric]
    if row.learned is not None and row.radius != report.budget.radius:
        sentence = _SCALED
    start = kind(sentence).format(
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
