"""A sentence to quote for every number: what may be claimed, of what, on which inputs, how surely."""

from __future__ import annotations

from nppr.core.tally import Claim, Metric
from nppr.report.at_least_line import covered_noise, noise_words
from nppr.report.findings import interval_of, table_rows
from nppr.report.model import MERGED, SPLITTING, ReportRecord, Result
from nppr.report.numbers import LOSSES, Numbers
from nppr.report.results_table import radius_text
from nppr.statistics.estimates import APPROXIMATE

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

_ALL_INPUTS = (Metric.ACCURACY, Metric.NORMALISED_ACCURACY, *LOSSES)
"""Metrics that are not of the clean-correct inputs alone."""


def quoted_rows(report: ReportRecord) -> tuple[list[Result], list[Result]]:
    """The rows of the table that have a number, and all other numbers of the report, each once."""
    shown = {_number(row): row for row in table_rows(report) if row.value is not None}
    others: dict[tuple[object, ...], Result] = {}
    for row in (*report.results, *report.other_radii):
        stated = row.metric in _SENTENCES and row.value is not None and not row.with_references
        if stated and _number(row) not in shown:
            others.setdefault(_number(row), row)
    return list(shown.values()), list(others.values())


def _number(row: Result) -> tuple[object, ...]:
    """What tells numbers apart; intervals of the same number differ in the method alone."""
    claim = row.claim if row.metric is Metric.BOUND else None
    return (row.metric, row.name, row.gamma, row.radius, claim, row.method == SPLITTING)


def sentence_of(numbers: Numbers, row: Result, kind: type[str] = str) -> str:
    """The sentence on a result, with its scope; `kind` is Markup on a page."""
    report, used = numbers.report, interval_of(numbers.report, row)
    sentence = _SENTENCES[row.metric]
    if row.dependency is not None and row.radius != report.budget.radius:
        sentence = _SCALED
    start = kind(sentence).format(
        noise=noise_of(report, row),
        least=100 * (1 - (row.gamma or 0.0)),
        nouns=report.budget.nouns,
    )
    counted = "inputs" if row.metric in _ALL_INPUTS else "clean-correct inputs"
    return kind("{} {}: {} on {}{}; {}{} {}{}; {}; {}.").format(
        start,
        numbers.claim(row, kind=kind),
        report.classifier.name,
        report.data.name,
        f", {report.budget.at(row.radius, radius_text(report, row.radius))}" if row.radius else "",
        f"correct if {report.data.task}; " if report.data.task else "",
        numbers.of(row, "inputs"),
        counted,
        kind(", {} draws each").format(numbers.of(row, "draws")) if row.draws > 1 else "",
        "the population they were drawn from" if row.claim is Claim.POPULATION else row.claim or "",
        f"{used.method}{', outside its tested regime' if APPROXIMATE in used.flags else ''}"
        + (", an indication" if row.method == SPLITTING else "")
        + (f", corrected for the choice of the lowest of {row.lowest_of}" if row.lowest_of else ""),
    )


def noise_of(report: ReportRecord, row: Result) -> str:
    """The noise that a result is of; of learned noise also the admissible set that was searched."""
    nouns = report.budget.nouns
    if row.metric is Metric.BOUND:
        return covered_noise(report, row)
    if row.bounded is not None:
        return f"{nouns.noises} {noise_words(report, row)}"
    if row.source == MERGED:
        return f"the attacks and {nouns.noises} that were tried, together"
    if row.dependency is None:
        return row.name
    scaled = row.radius != report.budget.radius
    where = f", found {nouns.found_at} {report.budget.text} and scaled" if scaled else ""
    return f"{row.name}, {row.dependency.describe(nouns)}, rho {row.floor or 0:g}{where}"
