"""What a run is quoted for: the answer in one sentence, the ladder, and how to cite it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from nppr.core.tally import Direction, Metric
from nppr.report.at_least_line import at_least_line, covered_noise, stated_bound
from nppr.report.brackets import bracket_scope, bracket_sentence, quoted_bracket
from nppr.report.findings import (
    GUARANTEED,
    as_lowest,
    attacked,
    bounds_of,
    came_lower,
    guaranteed,
    headline_of,
    interval_of,
    is_fixed,
    missing_search,
    population_bound,
    table_rows,
)
from nppr.report.ladder_tables import ladder_table, search_table, search_words
from nppr.report.model import CLEAN, MERGED, ReportRecord, Result
from nppr.report.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.quotes import quoted_rows, sentence_of
from nppr.report.results_table import subject_of

_MOST_LANES = 12
"""Lanes of learned noise, and of bounds."""


def answer(report: ReportRecord, numbers: Numbers) -> Markup:
    """The section's body."""
    first = headline_of(report)
    row = as_lowest(report, first) if first else None
    metric = row.metric if row else None
    clean = report.headline(CLEAN, Metric.ACCURACY)
    used = interval_of(report, row) if row else None
    bound = row if metric is Metric.BOUND else stated_bound(report)
    bracket = quoted_bracket(report) if row and row.noise_set else None
    return rendered(
        "answer.html.j2",
        n=numbers,
        report=report,
        kind="bracket" if bracket else metric.value if metric else "",
        bracket=bracket_sentence(numbers, bracket, Markup) if bracket else None,
        scope=bracket_scope(numbers, bracket, Markup) if bracket else None,
        row=row,
        table=ladder_table(report).to_html("The ladder", "ladder-table", sortable=False),
        rung=next((each for each in report.ladder if row and each.name == row.noise), None),
        knowing=row.dependency.epithet if row and row.dependency else "",
        fixed=row is not None and is_fixed(report, row),
        lower=came_lower(report, row) if row and metric is Metric.NPPR else [],
        missing=missing_search(report),
        used=used,
        exact=bool(used and used.method in GUARANTEED),
        guaranteed=guaranteed(report, row) if row else None,
        clean=clean if clean and clean.value is not None else None,
        attack=attacked(report) if metric in (Metric.PR, Metric.BOUND) else None,
        bound=at_least_line(numbers, bound, Markup) if bound else None,
        short=_bound_in_short(numbers, bound) if bound else "",
        noise=covered_noise(report, bound) if bound else "",
        nouns=report.budget.nouns,
    )


def _bound_in_short(numbers: Numbers, bound: Result) -> Markup:
    """A lower bound for the first screen: how much, for whom, under what."""
    report = numbers.report
    text = numbers.claim(bound, kind=Markup).removeprefix("at least ")
    parts = [Markup("{} for {}").format(text, bound.claim.value if bound.claim else "")]
    population = population_bound(report, bound)
    if population is not None:
        parts.append(Markup("{}&nbsp;% for the population").format(numbers.of(population)))
    return Markup("{}, under {}").format(Markup(", ").join(parts), covered_noise(report, bound))


@dataclass(frozen=True)
class Lane:
    """One number on the axis from 0 to 100 %: its kind, what it is of, and whose interval is shown.

    A lane is a line of text and a strip of the axis, so that labels never overlap. `population` is the
    same bound for the population.
    """

    name: str
    what: str
    row: Result
    interval: Result
    colour: str
    population: Result | None = None

    @property
    def at_most(self) -> bool:
        """Whether the truth can only be lower."""
        return self.row.direction is Direction.UPPER_BOUND

    @property
    def at_least(self) -> bool:
        """Whether the truth can only be higher."""
        return self.row.direction is Direction.LOWER_BOUND


def ladder(report: ReportRecord, numbers: Numbers) -> Markup:
    """The section's body."""
    lanes = lanes_of(report)
    replaced = {str(lane.interval.method) for lane in lanes if lane.interval is not lane.row}
    return rendered(
        "ladder.html.j2",
        n=numbers,
        nouns=report.budget.nouns,
        searches=search_table(report).to_html("The searches", "search-table"),
        rungs=report.ladder,
        words=search_words(report),
        lanes=lanes,
        claims=sorted({lane.row.claim.value for lane in lanes if lane.row.claim}),
        replaced=sorted(replaced),
        at_most=any(lane.at_most for lane in lanes),
        at_least=any(lane.at_least for lane in lanes),
    )


def lanes_of(report: ReportRecord) -> list[Lane]:
    """Down the ladder: PR, NPPR rung by rung, AR; then the lower bounds."""
    rows = [row for row in table_rows(report) if row.value is not None]
    learned = [row for row in rows if row.metric is Metric.NPPR and row.fit_seed is None]
    if len(learned) > _MOST_LANES:
        floors = {row.floor for row in learned}
        ends = min(floors, key=lambda x: x or 0.0), max(floors, key=lambda x: x or 0.0)
        learned = [row for row in learned if row.floor in ends]
    learned.sort(
        key=lambda row: (row.dependency.depth if row.dependency else 0, row.size or 0.0)
    )  # fmt: skip
    noise = [row for row in rows if row.metric is Metric.PR]
    fixed = [row for row in noise if is_fixed(report, row)]
    others = [row for row in noise if not is_fixed(report, row)]
    attack = attacked(report)
    nouns = report.budget.nouns
    words = [("PR", f"{row.name}, the highest observed", row) for row in fixed[1:][-1:]]
    words += [
        ("PR", f"{row.name}, the lowest fixed {nouns.noise} observed", as_lowest(report, row))
        for row in fixed[:1]
    ]
    words += [("PR", f"{row.name}, {nouns.other_noise}", row) for row in others[:1]]
    words += [("NPPR", _rung_words(row), row) for row in learned]
    if attack:
        together = f"all attacks and {nouns.noises} together"
        words.append(("AR", together if attack.source == MERGED else attack.name, attack))
    lanes = [
        Lane(name, what, row, interval_of(report, row), name.lower()) for name, what, row in words
    ]
    for row in bounds_of(report)[:_MOST_LANES]:
        what = covered_noise(report, row)
        lanes.append(Lane("at least", what, row, row, "bound", population_bound(report, row)))
    return lanes


def _rung_words(row: Result) -> str:
    if row.dependency is None:
        return row.name
    lowest = ", the lowest source of the set" if row.with_references else ""
    return f"{row.dependency.value}, rho {row.floor or 0:g}{lowest}"


def citation(report: ReportRecord, numbers: Numbers) -> Markup:
    """The section's body."""
    return rendered(
        "cite.html.j2",
        report=report,
        run=run_text(report),
        quoted=quoted_rows(report),
        sentence=lambda row: sentence_of(numbers, row, Markup),
    )


def run_text(report: ReportRecord) -> str:
    """What somebody needs to quote this run, as plain text."""
    row = headline_of(report)
    row = as_lowest(report, row) if row else None
    lines = [
        f"{subject_of(report)}, {report.data.inputs.evaluate:,} inputs, nppr {report.nppr_version}",
        *([sentence_of(Numbers(report), row)] if row else []),
        f"classifier {report.classifier.fingerprint}",
        f"data {report.data.fingerprint}",
    ]
    return "\n".join(lines)
