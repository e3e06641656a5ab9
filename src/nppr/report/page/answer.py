"""The answer of a run in one sentence, the ladder, and how to cite it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from nppr.core.tally import Metric
from nppr.noise.structures import ANY, STRUCTURES
from nppr.report.brackets import bracket_scope, bracket_sentence, bracket_table, quoted_bracket
from nppr.report.findings import (
    bounds_of,
    find_attacked,
    find_lower,
    headline_of,
    missing_search,
    table_rows,
)
from nppr.report.ladder_tables import (
    ladder_table,
    ladder_words,
    name_place,
    search_table,
    search_words,
    story_text,
    why_cells_are_empty,
)
from nppr.report.model import ReportRecord
from nppr.report.number import CLEAN, MergedSubject, Number, StatedInterval
from nppr.report.page.shell import rendered
from nppr.report.printed_numbers import Numbers
from nppr.report.quotes import at_least_line, covered_noise, quoted_rows, sentence_of, stated_bound
from nppr.report.results_table import describe_subject

if TYPE_CHECKING:
    from nppr.report.figures import Drawn

_MOST_LANES = 12
"""Lanes of learned noise, and of bounds."""


def answer(report: ReportRecord, numbers: Numbers) -> Markup:
    """Return the body of the section."""
    row = headline_of(report)
    metric = row.metric if row else None
    clean = report.headline(CLEAN, Metric.ACCURACY)
    used = row.quoted if row else None
    rung = row.learned.rung if row and row.learned else None
    bound = row if metric is Metric.BOUND else stated_bound(report)
    bracket = quoted_bracket(report) if row and row.bound else None
    if bracket:
        table = bracket_table(report).to_html("Brackets", "bracket-table")
    else:
        table = ladder_table(report).to_html("The ladder", "ladder-table", sortable=False)
    return rendered(
        "answer.html.j2",
        n=numbers,
        report=report,
        kind="bracket" if bracket else metric.value if metric else "",
        bracket=bracket_sentence(numbers, bracket, Markup) if bracket else None,
        scope=bracket_scope(numbers, bracket, Markup) if bracket else None,
        row=row,
        table=table,
        rung=next((each for each in report.ladder if row and each.name == row.subject.noise), None),
        story=story_text(numbers, Markup),
        words=ladder_words(report),
        empty=why_cells_are_empty(report),
        knowing=rung.epithet if rung else "",
        made_of=_structure_words(report, row) if row else "",
        fixed=row is not None and row.is_fixed,
        lower=find_lower(report, row) if row and metric is Metric.NPPR else [],
        missing=missing_search(report),
        used=used,
        guaranteed=row.guaranteed if row else None,
        clean=clean if clean and clean.value is not None else None,
        attack=find_attacked(report) if metric in (Metric.PR, Metric.BOUND) else None,
        bound=at_least_line(numbers, bound, Markup) if bound else None,
        short=_bound_in_short(numbers, bound) if bound else "",
        noise=covered_noise(report, bound.bound) if bound and bound.bound else "",
        nouns=report.budget.nouns,
    )


def _structure_words(report: ReportRecord, row: Number) -> str:
    """State what learned noise may be made of; laws have no structure."""
    if row.learned is None or report.budget.parameters:
        return ""
    return f", {STRUCTURES[row.learned.structure].meaning}"


def _bound_in_short(numbers: Numbers, row: Number) -> Markup:
    """A lower bound for the first screen: how much, for whom, under what."""
    assert row.bound is not None
    text = numbers.claim(row, kind=Markup).removeprefix("at least ")
    parts = [Markup("{} for {}").format(text, row.own.claim.value if row.own else "")]
    if row.population is not None:
        population = numbers.of(row, "low", row.population)
        parts.append(Markup("{}&nbsp;% for the population").format(population))
    noise = covered_noise(numbers.report, row.bound)
    return Markup("{}, under {}").format(Markup(", ").join(parts), noise)


@dataclass(frozen=True)
class Lane:
    """One number on the axis from 0 to 100 %: its kind, what it is of, and whose interval is shown.

    A lane is a line of text and a strip of the axis, so that labels never overlap.
    """

    name: str
    what: str
    row: Number
    interval: StatedInterval
    colour: str


def ladder_section(report: ReportRecord, numbers: Numbers, figures: Sequence[Drawn] = ()) -> Markup:
    """Return the body of the section."""
    lanes = lanes_of(report)
    replaced = {
        lane.interval.method
        for lane in lanes
        if lane.interval is not lane.row.own and not lane.interval.lowest_of
    }
    return rendered(
        "ladder.html.j2",
        n=numbers,
        nouns=report.budget.nouns,
        searches=search_table(report).to_html("The searches", "search-table"),
        rungs=report.ladder,
        figures=figures,
        structured=any(rung.structure != ANY for rung in report.ladder),
        words=search_words(report),
        lanes=lanes,
        claims=sorted({lane.interval.claim.value for lane in lanes}),
        replaced=sorted(replaced),
        at_most=any(lane.row.is_upper_bound for lane in lanes),
        at_least=any(lane.row.is_lower_bound for lane in lanes),
    )


def lanes_of(report: ReportRecord) -> list[Lane]:
    """Return PR, NPPR rung by rung and AR, down the ladder, and then the lower bounds."""
    rows = [row for row in table_rows(report) if row.value is not None]
    learned = [row for row in rows if row.metric is Metric.NPPR and not row.is_repeated]
    if len(learned) > _MOST_LANES:
        floors = [row.learned.floor for row in learned if row.learned] or [0.0]
        ends = (min(floors), max(floors))
        learned = [row for row in learned if row.learned is None or row.learned.floor in ends]
    learned.sort(key=_lane_order)
    noise = [row for row in rows if row.metric is Metric.PR]
    fixed = [row for row in noise if row.is_fixed]
    others = [row for row in noise if not row.is_fixed]
    attack, nouns = find_attacked(report), report.budget.nouns
    lowest = f"the lowest fixed {nouns.noise} observed"
    words = [(f"{row.name}, the highest observed", row, row.shown) for row in fixed[1:][-1:]]
    words += [(f"{row.name}, {lowest}", row, row.quoted) for row in fixed[:1]]
    words += [(f"{row.name}, {nouns.other_noise}", row, row.shown) for row in others[:1]]
    words += [(_rung_words(row), row, row.shown) for row in learned]
    if attack:
        together = f"all attacks and {nouns.noises} together"
        merged = isinstance(attack.subject, MergedSubject)
        words.append((together if merged else attack.name, attack, attack.shown))
    return [
        *(
            Lane(row.metric.value, what, row, used, row.metric.value.lower())
            for what, row, used in words
            if used is not None
        ),
        *(
            Lane("at least", covered_noise(report, row.bound), row, row.own, "bound")
            for row in bounds_of(report)[:_MOST_LANES]
            if row.bound is not None and row.own is not None
        ),
    ]


def _lane_order(row: Number) -> tuple[int, int, float]:
    """By structure and down the ladder; brackets by the length of the offset."""
    if row.learned is not None:
        floor, structure, depth = row.learned.place
        return structure, depth, floor
    return 0, 0, (row.bound.size if row.bound else None) or 0.0


def _rung_words(row: Number) -> str:
    if row.learned is None or row.learned.admissible is None:
        return row.name
    lowest = ", the lowest source of the set" if row.with_references else ""
    admissible = row.learned.admissible
    return f"{admissible.rung}, {name_place((admissible.floor, admissible.structure))}{lowest}"


def citation(report: ReportRecord, numbers: Numbers) -> Markup:
    """Return the body of the section."""
    return rendered(
        "cite.html.j2",
        report=report,
        run=run_text(report),
        quoted=quoted_rows(report),
        sentence=lambda quote: sentence_of(numbers, quote[0], quote[1], kind=Markup),
    )


def run_text(report: ReportRecord) -> str:
    """Return what a reader needs to quote this run, as plain text."""
    row, inputs = headline_of(report), report.data.inputs.evaluate
    lines = [
        f"{describe_subject(report)}, {inputs:,} inputs, nppr {report.nppr_version}",
        *([sentence_of(Numbers(report), row, row.quoted)] if row else []),
        f"classifier {report.classifier.fingerprint}",
        f"data {report.data.fingerprint}",
    ]
    return "\n".join(lines)
