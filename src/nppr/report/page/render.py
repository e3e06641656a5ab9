"""The page of one run, section by section, in the order in which a reviewer asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from nppr.core.tally import Claim, Metric
from nppr.report.brackets import quoted_bracket
from nppr.report.evidence import Evidence
from nppr.report.findings import not_followed, table_rows
from nppr.report.measured_noise import describe_samples
from nppr.report.model import ReportRecord
from nppr.report.number import MergedSubject, Number
from nppr.report.page.answer import answer, citation, ladder_section
from nppr.report.page.input_sections import by_class, noise_looks, worst_inputs
from nppr.report.page.shell import page_shell, rendered
from nppr.report.per_input import PerInput
from nppr.report.printed_numbers import Numbers
from nppr.report.quotes import radius_text
from nppr.report.results_table import (
    describe_subject,
    legend_of,
    slices_table,
    table_of,
    worst_words,
)

if TYPE_CHECKING:
    from nppr.report.figures import Drawn

SECTIONS = {
    "answer": "The answer",
    "ladder": "The ladder",
    "looks": "What the noise looks like",
    "admissible": "The admissible set",
    "comparison": "Comparison of all sources",
    "samples": "The noise of your frames",
    "classes": "By class",
    "worst": "The worst inputs",
    "learned": "The learned distribution",
    "flags": "Flags and grade",
    "measured": "How it was measured",
    "cite": "How to cite",
}
"""Ids and headings, in this order."""

_COMPARED = ("brackets", "radii", "rates")
"""Figures of all sources: they are below the comparison."""

_SEARCHED = ("searches",)
"""Figures below the table of searches."""

_ON_ITS_OWN = ("ladder",)
"""Figures for files alone: the page draws the ladder itself."""


def render(
    report: ReportRecord,
    per_input: PerInput | None = None,
    evidence: Evidence | None = None,
    figures: Sequence[Drawn] = (),
) -> str:
    """One HTML file that needs nothing else; the page reports what is not given as missing."""
    numbers = Numbers(report)
    compared = [figure for figure in figures if figure.id in _COMPARED]
    searched = [figure for figure in figures if figure.id in _SEARCHED]
    elsewhere = (*_COMPARED, *_SEARCHED, *_ON_ITS_OWN)
    others = [figure for figure in figures if figure.id not in elsewhere]
    sections = dict(SECTIONS)
    bodies = {
        "answer": answer(report, numbers),
        "ladder": ladder_section(report, numbers, searched),
        "looks": noise_looks(report, evidence),
        "admissible": admissible_set(report, numbers),
        "comparison": comparison(report, numbers, compared),
        "samples": rendered("samples.html.j2", lines=describe_samples(report)),
        "classes": by_class(report, per_input) + by_slice(report),
        "worst": worst_inputs(report, evidence, per_input),
        "learned": learned_noise(report, numbers, others),
        "flags": flags_and_grade(report),
        "measured": measured(report, numbers),
        "cite": citation(report, numbers),
    }
    if report.data.classes == 1:  # targets are not classes
        bodies["classes"], sections["classes"] = by_slice(report), "By slice"
    sections = {name: title for name, title in sections.items() if bodies[name]}
    body = rendered("page.html.j2", report=report, n=numbers, sections=sections, bodies=bodies)
    return page_shell(f"Robustness of {report.classifier.name} on {report.data.name}", body)


def page_of(
    report: ReportRecord, per_input: PerInput | None = None, evidence: Evidence | None = None
) -> str:
    """The page with all its figures."""
    # Matplotlib takes a second to import, and only figures need it.
    from nppr.report.figures import figures_of

    return render(report, per_input, evidence, figures_of(report, per_input, evidence))


def fragment_of(report: ReportRecord) -> str:
    """The answer and the table for a notebook: no script, no style of the page's."""
    numbers, subject = Numbers(report), describe_subject(report)
    parts = {"answer": answer(report, numbers), "comparison": comparison(report, numbers)}
    return str(rendered("fragment.html.j2", subject=subject, **parts))


def admissible_set(report: ReportRecord, numbers: Numbers) -> Markup:
    """Return the body of the section."""
    asked = report.settings.search
    # Without features, the search uses a smaller set than the requested one.
    searches = [*(made.search.settings for made in report.distributions), asked]
    family = next((search.family for search in searches if search), None)
    return rendered(
        "admissible.html.j2",
        n=numbers,
        words=family.dependency.describe(report.budget.nouns) if family else "",
        per_class=bool(asked and asked.per_class and family and family.dependency.sees_label),
        edges=_edges(report),
        bracket=None if asked or report.distributions else quoted_bracket(report),
        report=report,
        family=family,
        asked=asked.family.dependency if asked else None,
    )


def _edges(report: ReportRecord) -> str:
    """How pixels outside the image are made, for readers."""
    words = {"edges=nearest": "the nearest is repeated", "edges=zeros": "black"}
    parts = (report.budget.transform or "").split(",")
    return next((words[part] for part in parts if part in words), "mirrored at its edge")


def comparison(report: ReportRecord, numbers: Numbers, figures: Sequence[Drawn] = ()) -> Markup:
    """Return the body of the section."""
    relative = [row for row in report.numbers if row.metric.is_of_clean_correct and row.inputs]
    nearly: dict[str, list[Number]] = {}  # prob_acc of every source that has it, by gamma
    for row in report.numbers:
        if row.metric is Metric.PROB_ACC and row.value is not None:
            nearly.setdefault(row.name, []).append(row)
    return rendered(
        "comparison.html.j2",
        n=numbers,
        report=report,
        table=table_of(report).to_html("Comparison table", "comparison-table"),
        legend=legend_of(report),
        radii=[radius_text(report, radius) for radius, _ in report.at_other_radii()],
        at_radii=_at_radii(report),
        figures=figures,
        not_followed=not_followed(report),
        joined=[row for row in report.numbers if row.is_split],
        nearly=nearly,
        gammas=[row.gamma for row in next(iter(nearly.values()), [])],
        relative=next(iter(relative), None),
    )


def _at_radii(report: ReportRecord) -> list[tuple[Number, list[Number | None]]]:
    """The rows of the table with the same number at the other radii."""
    shown = [
        row
        for row in table_rows(report)
        if row.metric in (Metric.AR, Metric.NPPR, Metric.PR)
        and not isinstance(row.subject, MergedSubject)
        and row.value is not None
    ]
    tables = [
        {(row.name, row.metric): row for row in reversed(rows)}
        for _, rows in report.at_other_radii()
    ]
    return [(row, [table.get((row.name, row.metric)) for table in tables]) for row in shown]


def learned_noise(report: ReportRecord, numbers: Numbers, figures: Sequence[Drawn] = ()) -> Markup:
    """Return the body of the section."""
    rows = {made.name: report.headline(made.name, Metric.NPPR) for made in report.distributions}
    return rendered("learned.html.j2", n=numbers, report=report, rows=rows, figures=figures)


def flags_and_grade(report: ReportRecord) -> Markup:
    """The section's body: each flag once, with all its messages and sources."""
    raised: dict[str, dict[str, dict[str, None]]] = {}
    for flag in report.flags:
        found = raised.setdefault(flag.id, {"messages": {}, "sources": {}})
        found["messages"][flag.message] = None
        found["sources"] |= {flag.source: None} if flag.source else {}
    return rendered("flags.html.j2", report=report, raised=raised)


def measured(report: ReportRecord, numbers: Numbers) -> Markup:
    """Return the body of the section."""
    rows = [*report.numbers, *report.other_radii]
    stated = [interval for row in rows for interval in row.intervals]
    claims = {
        claim.value: list(dict.fromkeys(each.method for each in stated if each.claim is claim))
        for claim in Claim
    }
    widths = report.precision.widths if report.precision else {}
    return rendered(
        "measured.html.j2",
        n=numbers,
        report=report,
        claims={claim: methods for claim, methods in claims.items() if methods},
        widest=max(widths, key=lambda source: widths[source].half_width, default=None),
    )


def by_slice(report: ReportRecord) -> Markup:
    """What follows the classes; empty for a run without columns beside the data."""
    if not (words := worst_words(report)):
        return Markup("")
    table = slices_table(report).to_html("Robustness by slice", "slice-table")
    return rendered("slices.html.j2", words=words, table=table)
