"""The page of one run, section by section, in the order in which a reviewer asks."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from nppr.report.evidence import Evidence
from nppr.report.figures import figures_of
from nppr.report.page.admissible import admissible_set
from nppr.report.page.answer import answer
from nppr.report.page.cite import how_to_cite
from nppr.report.page.classes import by_class
from nppr.report.page.comparison import comparison
from nppr.report.page.figures import PageFigure, page_figures
from nppr.report.page.flags import flags_and_grade
from nppr.report.page.learned import learned
from nppr.report.page.line import robustness_line
from nppr.report.page.measured import measured
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import page_shell, rendered
from nppr.report.page.worst import worst_inputs
from nppr.report.per_input import PerInput
from nppr.report.schema import Report

__all__ = ["SECTIONS", "fragment_of", "page_of", "render"]

SECTIONS = {
    "answer": "The answer",
    "line": "The robustness line",
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

COMPARED = ("radii", "rates")
"""Figures of all sources: they stand below the comparison."""


def page_of(
    report: Report, per_input: PerInput | None = None, evidence: Evidence | None = None
) -> str:
    """The page with all its figures."""
    drawn = figures_of(report, per_input, evidence)
    return render(report, per_input, evidence, page_figures(drawn))


def render(
    report: Report,
    per_input: PerInput | None = None,
    evidence: Evidence | None = None,
    figures: Sequence[PageFigure] = (),
) -> str:
    """One HTML file that needs nothing else; what is not given is said to be missing."""
    numbers = Numbers(report)
    bodies = {
        "answer": answer(report, numbers),
        "line": robustness_line(report, numbers),
        "admissible": admissible_set(report, numbers),
        "comparison": comparison(report, numbers, [f for f in figures if f.id in COMPARED]),
        "classes": by_class(report, numbers, per_input),
        "worst": worst_inputs(report, evidence, per_input),
        "learned": learned(report, numbers, [f for f in figures if f.id not in COMPARED]),
        "flags": flags_and_grade(report),
        "measured": measured(report, numbers),
        "cite": how_to_cite(report),
    }
    body = rendered("page.html.j2", report=report, n=numbers, sections=SECTIONS, bodies=bodies)
    name, data = report.classifier["name"], report.data["name"]
    return page_shell(f"Robustness of {name} on {data}", body)


def fragment_of(report: Report) -> str:
    """The answer and the table for a notebook: no script, no style of the page's."""
    numbers = Numbers(report)
    body: Markup = rendered(
        "fragment.html.j2",
        report=report,
        answer=answer(report, numbers),
        comparison=comparison(report, numbers),
    )
    return str(body)
