"""The sections on the admissible set, all sources, learned noise, flags, and the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from nppr.core.tally import Claim, Metric
from nppr.report.brackets import quoted_bracket
from nppr.report.findings import not_followed, table_rows
from nppr.report.model import ReportRecord
from nppr.report.number import MergedSubject, Number
from nppr.report.page.shell import rendered
from nppr.report.printed_numbers import Numbers
from nppr.report.results_table import legend_of, radius_text, table_of

if TYPE_CHECKING:
    from nppr.report.figures import Drawn


def admissible_set(report: ReportRecord, numbers: Numbers) -> Markup:
    """Return the body of the section."""
    asked = report.settings.search
    # Without features, the search uses a smaller set than the requested one.
    searches = [*(made.search.settings for made in report.distributions), asked]
    family = next((search.family for search in searches if search), None)
    words = ""
    if family is not None:
        words = family.dependency.describe(report.budget.nouns)
    return rendered(
        "admissible.html.j2",
        n=numbers,
        words=words,
        per_class=bool(asked and asked.per_class and family and family.dependency.sees_label),
        edges=_edges(report),
        bracket=None if asked or report.distributions else quoted_bracket(report),
        report=report,
        family=family,
        asked=asked.family.dependency if asked else None,
    )


def _edges(report: ReportRecord) -> str:
    """How pixels outside the image are made, for readers."""
    parts = (report.budget.transform or "").split(",")
    chosen = [part.removeprefix("edges=") for part in parts if part.startswith("edges=")]
    return {"nearest": "the nearest is repeated", "zeros": "black"}.get(
        chosen[0] if chosen else "", "mirrored at its edge"
    )


def comparison(report: ReportRecord, numbers: Numbers, figures: Sequence[Drawn] = ()) -> Markup:
    """Return the body of the section."""
    nearly = _nearly_always_correct(report)
    relative = [row for row in report.numbers if row.metric.is_of_clean_correct and row.inputs]
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


def _nearly_always_correct(report: ReportRecord) -> dict[str, list[Number]]:
    """Prob.Acc of every source that has it, in the order of gamma."""
    found: dict[str, list[Number]] = {}
    for row in report.numbers:
        if row.metric is Metric.PROB_ACC and row.value is not None:
            found.setdefault(row.name, []).append(row)
    return found


def learned_noise(report: ReportRecord, numbers: Numbers, figures: Sequence[Drawn] = ()) -> Markup:
    """Return the body of the section."""
    rows = {made.name: report.headline(made.name, Metric.NPPR) for made in report.distributions}
    return rendered("learned.html.j2", n=numbers, report=report, rows=rows, figures=figures)


def flags_and_grade(report: ReportRecord) -> Markup:
    """The section's body: each flag once, with all its messages and sources."""
    raised = {
        name: {
            "messages": list(dict.fromkeys(f.message for f in report.flags if f.id == name)),
            "sources": list(
                dict.fromkeys(f.source for f in report.flags if f.id == name and f.source)
            ),
        }
        for name in dict.fromkeys(flag.id for flag in report.flags)
    }
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
