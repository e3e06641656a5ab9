"""The page of one run, section by section, in the order in which a reviewer asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nppr.report.evidence import Evidence
from nppr.report.model import ReportRecord
from nppr.report.page.answer import answer, citation, ladder_section
from nppr.report.page.input_sections import by_class, worst_inputs
from nppr.report.page.run_sections import (
    admissible_set,
    comparison,
    flags_and_grade,
    learned_noise,
    measured,
)
from nppr.report.page.shell import page_shell, rendered
from nppr.report.page.slice_section import by_slice
from nppr.report.per_input import PerInput
from nppr.report.printed_numbers import Numbers
from nppr.report.results_table import describe_subject

if TYPE_CHECKING:
    from nppr.report.figures import Drawn

SECTIONS = {
    "answer": "The answer",
    "ladder": "The ladder",
    "admissible": "The admissible set",
    "comparison": "Comparison of all sources",
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
    others = [figure for figure in figures if figure.id not in (*_COMPARED, *_ON_ITS_OWN)]
    sections = dict(SECTIONS)
    bodies = {
        "answer": answer(report, numbers),
        "ladder": ladder_section(report, numbers),
        "admissible": admissible_set(report, numbers),
        "comparison": comparison(report, numbers, compared),
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
    numbers = Numbers(report)
    return str(
        rendered(
            "fragment.html.j2",
            subject=describe_subject(report),
            answer=answer(report, numbers),
            comparison=comparison(report, numbers),
        )
    )
