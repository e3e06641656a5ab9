"""The table of results, declared once for terminal, page and files, and the notes below it."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup
from rich.console import Console

from nppr.core.tally import Direction, Metric
from nppr.report.findings import bounds_of, headline_of, not_followed, table_rows, worst_slices
from nppr.report.ladder_tables import (
    ladder_table,
    search_table,
    search_words,
    steps_of,
    story_text,
    threat_table,
)
from nppr.report.measured_noise import describe_samples
from nppr.report.model import ReportRecord
from nppr.report.number import Number, StatedInterval
from nppr.report.printed_numbers import Numbers, claim_text, percent, rounded_out
from nppr.report.quotes import at_least_line, radius_text, stated_bound
from nppr.report.tables import EMPTY, Cell, Column, Output, Table
from nppr.settings import RARE_ACCURACY
from nppr.statistics.estimates import APPROXIMATE, UNRESOLVED

_BAR = 20

_NAMES = {metric: metric.value for metric in Metric} | {Metric.CORRUPTION: "corrupted"}
"""Metrics in a table; a longer name would not leave room for the others on a line of 80 letters."""

_LEGEND = {
    Metric.PR: "fraction of correct draws, mean over the clean-correct inputs",
    Metric.NPPR: "PR under the worst {nouns.noise} found in the admissible set: an upper bound",
    Metric.AR: "fraction of clean-correct inputs that nothing broke: an upper bound",
    Metric.CORRUPTION: "fraction of clean-correct inputs that stay correct; no budget",
    Metric.BOUND: "lower bound: {nouns.all_noise} of a set around {reference}; test set",
    Metric.STRESS: "loss (E l^q)^(1/q) under Uniform noise; / clean: over the clean loss",
}

_OF_SEARCHES = {
    "value": "of AR and NPPR: observed under the {nouns.noise} found",
    "interval": "of these: conditional on that {nouns.noise}; its upper end bounds the worst",
}


@dataclass(frozen=True)
class _FlagLink:
    """A flag that links to its explanation on the page."""

    flag: str

    def __str__(self) -> str:
        return self.flag

    def __html__(self) -> str:
        return Markup('<a href="#flag-{0}">{0}</a>').format(self.flag)


def _missing(row: Number) -> Cell:
    return Cell(None, "skipped" if row.flags else "failed")


def _value(numbers: Numbers, row: Number) -> Cell:
    if row.value is None:
        return _missing(row)
    sign = "≥ " if row.is_lower_bound else ""
    return Cell.made_of(row.value, sign, numbers.of(row))


def _interval(numbers: Numbers, row: Number) -> Cell:
    return _ends(numbers, row, row.own)


def _ends(numbers: Numbers, row: Number, used: StatedInterval | None) -> Cell:
    if used is None:
        return EMPTY
    ends = numbers.of(row, "low", used), "-", numbers.of(row, "high", used)
    return Cell.made_of(used.ends, *ends, "*" if used.is_untested else "")


def _guaranteed(numbers: Numbers, row: Number) -> Cell:
    """The interval of this number that holds at any sample size.

    Under a search for bad noise only its upper end applies to the worst noise.
    """
    found = row.guaranteed
    if found is not None and row.is_upper_bound:
        return Cell.made_of(found.ends, "≤ ", numbers.of(row, "high", found))
    return _ends(numbers, row, found)


def _normalised(numbers: Numbers, row: Number) -> Cell:
    """Relative to the clean accuracy; of a loss, to the clean loss."""
    stress = row.metric is Metric.STRESS
    metric = Metric.NORMALISED_STRESS if stress else Metric.NORMALISED_ACCURACY
    found = numbers.report.headline(row.name, metric)
    if found is None or found.value is None or found.radius != row.radius:
        return EMPTY
    return Cell.made_of(found.value, "x " if stress else "", numbers.of(found))


def _short(numbers: Numbers, row: Number) -> Cell:
    """What may be claimed, as a cell of the ladder states it."""
    if row.value is None:
        return _missing(row)
    return Cell(row.value, numbers.claim(row, cell=True, kind=str))


def _count(field: str) -> Callable[[Numbers, Number], Cell]:
    return lambda numbers, row: (
        EMPTY if row.value is None else Cell.made_of(getattr(row, field), numbers.of(row, field))
    )


def _fact(path: str) -> Callable[[Numbers, Number], Cell]:
    """A fact of the number that is printed as it is; empty if any part of the path is None."""

    def cell(_: Numbers, row: Number) -> Cell:
        value: Any = row
        for name in path.split("."):
            value = None if value is None else getattr(value, name)
        return Cell.of(value)

    return cell


def _flags(_: Numbers, row: Number) -> Cell:
    links = [part for flag in row.shown_flags for part in (", ", _FlagLink(flag))]
    return Cell.made_of(" ".join(row.shown_flags), *links[1:])


def _flags_on(numbers: Numbers, row: Number) -> Cell:
    """The flags on a number, on its source, and the serious ones on the whole run.

    That of an approximate interval does not count if a guaranteed one is quoted instead.
    """
    own = (*row.flags, *(row.shown.flags if row.shown else ()))
    others = (
        flag.id
        for flag in numbers.report.flags
        if flag.source == row.subject.noise or (flag.source is None and flag.severity == "serious")
    )
    return Cell.of(" ".join(dict.fromkeys([*own, *others])))


def _bar(_: Numbers, row: Number) -> Cell:
    """The value as a bar and its interval as a band, on an axis from 0 to 100 %; a loss has none."""
    if row.value is None or row.own is None or row.metric.is_loss:
        return EMPTY
    end, first, last = (round(min(1.0, x) * _BAR) for x in (row.value, *row.own.ends))
    band = range(min(first, _BAR - 1), max(first + 1, last))
    return Cell.of("".join("▒" if i in band else "█" if i < end else " " for i in range(_BAR)))


DIRECTIONS = {
    Direction.UPPER_BOUND: "at most",
    Direction.LOWER_BOUND: "at least",
    Direction.ESTIMATE: "estimate",
}
"""How a number is to be read, in words."""


def _data(name: str, *, interval: bool = False) -> Column:
    """A column for programs alone: CSV, JSON and data frames."""
    outside: tuple[Output, ...] = ("page", "markdown", "latex")
    return Column(name, name, interval=interval, terminal=None, outside=outside)


def _wide(name: str, heading: str, *outside: Output, number: bool = False) -> Column:
    """A column for which neither terminals nor papers have room."""
    return Column(name, heading, number=number, terminal=None, outside=("latex", *outside))


_Made = Callable[[Numbers, Number], Cell]
RESULT_COLUMNS: tuple[tuple[Column, _Made], ...] = (
    (Column("metric", "metric"), lambda _, row: Cell(row.metric.value, _NAMES[row.metric])),
    (Column("source", "source"), _fact("name")),
    (Column("value", "value{unit}", number=True, outside=("latex",)), _value),
    (Column("interval", "{level} interval", number=True, interval=True, outside=("latex",)), _interval),
    (Column("guaranteed", "guaranteed", number=True, interval=True, outside=("latex",)), _guaranteed),
    (Column("normalised", "/ clean", number=True, outside=("latex",)), _normalised),
    # A paper has no room for more: what may be claimed, in the short form.
    (
        Column("short", "result{unit} ({level} confidence)", number=True, terminal=None,
               outside=("page", "markdown", "data")),
        _short,
    ),
    # The page has a sentence for every number instead.
    (
        _wide("statement", "may be claimed", "page"),
        lambda numbers, row: Cell.of(None if row.value is None else numbers.claim(row, kind=str)),
    ),
    # The page states the inputs once, above the table.
    (_wide("inputs", "inputs", "page", number=True), _count("inputs")),
    (Column("draws", "draws", number=True), _count("draws")),
    (_wide("calls", "calls", number=True), _count("calls")),
    (_wide("method", "method"), _fact("own.method")),
    (_wide("claim", "applies to"), _fact("own.claim.value")),
    (_wide("flags", "flags"), _flags),
    # The page lists errors below the table.
    (_wide("error", "error", "page"), _fact("error")),
    # For programs that quote the number; `low` and `high` are the interval to print.
    (_data("direction"), lambda _, row: Cell.of(row.direction and DIRECTIONS[row.direction])),
    (_data("", interval=True), lambda _, row: Cell(row.shown.ends, "") if row.shown else EMPTY),
    (_data("printed_method"), _fact("shown.method")),
    (_data("confidence"), lambda _, row: Cell(row.confidence, "")),
    (_data("radius"), _fact("radius")),
    (_data("rung"), _fact("learned.rung")),
    (_data("structure"), _fact("learned.structure")),
    (_data("floor"), _fact("learned.floor")),
    (_data("all_flags"), _flags_on),
    (
        Column("bar", "0" + "100".rjust(_BAR - 1), terminal=104,
               outside=("page", "markdown", "latex", "data")),
        _bar,
    ),
)  # fmt: skip
"""The columns of the table of results, each with its cell: a column added here is shown everywhere."""


def table_of(
    report: ReportRecord, left_out: Collection[Number] = (), *, other_radii: bool = False
) -> Table:
    """One row per source: clean accuracy first, then from AR up to PR, smallest first.

    Fractions are in %; `stress` is a loss and printed as it is. A source that failed has a row too.
    With `other_radii`, a row for every source at every other radius follows.
    """
    rows, numbers = [row for row in table_rows(report) if row not in left_out], Numbers(report)
    if other_radii:
        others = {(row.radius, row.metric, row.name): row for row in report.other_radii[::-1]}
        rows += others.values()
    quoted = headline_of(report)
    unit = "" if any(row.metric.is_loss for row in rows) else " %"
    heads = {"level": _level(report), "unit": unit}
    correct = [
        round((row.value or 0) * row.inputs) if row.metric is Metric.ACCURACY else row.inputs
        for row in report.numbers
        if row.metric is Metric.ACCURACY or row.metric.is_of_clean_correct
    ]
    return Table(
        f"{describe_subject(report)}; {report.data.inputs.evaluate:,} inputs of the evaluate split,"
        f" {max(correct, default=0):,} of them clean-correct",
        tuple(replace(each, heading=each.heading.format(**heads)) for each, _ in RESULT_COLUMNS),
        tuple(tuple(cell(numbers, row) for _, cell in RESULT_COLUMNS) for row in rows),
        grouped=True,
        marked=next((number for number, row in enumerate(rows) if row is quoted), None),
    )


def _level(report: ReportRecord) -> str:
    return f"{100 * report.settings.measure.confidence:g} %"


def describe_subject(report: ReportRecord) -> str:
    """Return one line that states model, data, task, budget and seed."""
    task = f", correct if {report.data.task}" if report.data.task else ""
    return (
        f"{report.classifier.name} on {report.data.name}{task}, budget {report.budget},"
        f" seed {report.seed}"
    )


def summary_of(report: ReportRecord) -> str:
    """The run, the number it is quoted for and its grade, in a line."""
    row, sizes = headline_of(report), report.data.inputs
    parts = [
        describe_subject(report),
        f"{sizes.evaluate:,} inputs evaluated ({sizes.fit:,} to fit, {sizes.select:,} to select)",
        f"grade {report.grade.letter}",
    ]
    if row is not None:
        claim = Numbers(report).claim(row, row.quoted, kind=str)
        parts.insert(1, f"{_NAMES[row.metric]} {row.name} {claim}")
    return "; ".join(parts)


def as_text(report: ReportRecord, width: int) -> str:
    """The table and its notes as plain text."""
    text = io.StringIO()
    console = Console(file=text, width=width, no_color=True, highlight=False, emoji=False)
    for table in terminal_tables(report):
        console.print(table.to_rich(width))
    console.print(notes_of(report), markup=False)
    return text.getvalue()


def terminal_tables(report: ReportRecord) -> list[Table]:
    """The ladder and how well it was searched, then the rows that are not on it."""
    # One line states the bounds that were not asked for.
    read = [row for row in bounds_of(report) if row.bound and not row.bound.asked]
    results, steps = table_of(report, read), steps_of(report)
    if not steps:
        return [results]
    rungs = [row for step in steps for row in step.numbers.values() if row.learned]
    ladder = ladder_table(report)
    captions = (results.caption, story_text(Numbers(report)), ladder.caption)
    return [
        replace(ladder, caption="\n\n".join(filter(None, captions))),
        threat_table(report),
        *([search_table(report)] if report.ladder else []),
        replace(table_of(report, [*rungs, *read]), caption="All other results"),
    ]


CLASS = "class"
"""The column that every run has; the page shows it as bars."""


def slices_table(report: ReportRecord) -> Table:
    """A row for every slice of the columns beside the data, the worst of each column first."""
    numbers, worst = Numbers(report), worst_slices(report)
    heading = f"{_level(report)} interval, all of a column together"
    columns = (
        Column("column", "column"),
        Column("slice", "slice"),
        Column("value", "observed %", number=True),
        Column("", heading, number=True, interval=True),
        Column("inputs", "inputs", number=True),
    )
    rows = []
    for at, row in enumerate(report.slices):
        if row.column == CLASS:
            continue
        low = numbers.at("at-least", "slices", at, "low")
        high = numbers.at("at-most", "slices", at, "high")
        interval = ("≤ ", high) if row.direction is Direction.UPPER_BOUND else (low, "-", high)
        rows.append(
            (
                Cell.of(row.column),
                Cell(row.name, row.name, strong=row is worst[row.column]),
                Cell.made_of(row.value, numbers.at("percent", "slices", at, "value")),
                Cell.made_of((row.low, row.high), *interval),
                Cell.made_of(row.inputs, numbers.at("count", "slices", at, "inputs")),
            )
        )
    return Table("", columns, tuple(rows), grouped=True)


def worst_words(report: ReportRecord) -> str:
    """The worst slice of each column beside the data, in a sentence; empty without any."""
    worst = [row for row in worst_slices(report).values() if row.column != CLASS]
    named = ", ".join(
        f"{row.column} {row.name} ({percent(row.value)} % observed, {row.inputs:,} inputs)"
        for row in worst
    )
    return f"The lowest slices observed under {worst[0].source}: {named}." if worst else ""


def spectrum_table(report: ReportRecord) -> Table:
    """NPPR of the widest set by rho, smallest first; its JSON is that of `nppr spectrum`."""
    level = _level(report)
    columns = (
        Column("floor", "rho", number=True),
        Column("at_most", f"NPPR % at most, {level} confidence", number=True),
        Column("value", "observed %", number=True),
        Column("", f"{level} interval", number=True, interval=True),
        Column("realised_std", f"realised std / {report.budget.nouns.std_unit}", number=True),
        Column("selected", "selected"),
    )
    numbers = Numbers(report)
    rows = []
    widest = max((made.admissible.place[1:] for made in report.distributions), default=None)
    for made in sorted(report.distributions, key=lambda made: made.family.floor):
        row = report.headline(made.name, Metric.NPPR)
        if row is not None and made.fit_seed is None and made.admissible.place[1:] == widest:
            std, most = made.diagnostics.realised_std, row.shown.high if row.shown else None
            rows.append(
                (
                    Cell(made.family.floor, f"{made.family.floor:g}"),
                    EMPTY if most is None else Cell(most, percent(most, "at-most")),
                    _value(numbers, row),
                    _interval(numbers, row),
                    Cell(std, f"{std:.3f}"),
                    Cell.of(made.search.selected),
                )
            )
    return Table("", columns, tuple(rows))


def _median_notes(report: ReportRecord) -> list[str]:
    """State the median of each parameter under the learned laws of a transformation."""
    lines = []
    for made in report.distributions:
        medians = made.diagnostics.parameters
        shown = [each for each in report.budget.parameters if each.name in medians]
        texts = [f"{each.name} {medians[each.name]:.3g} {each.unit}".strip() for each in shown]
        lines += [f"{made.name}: median {', '.join(texts)}"] if texts else []
    return lines


def notes_of(report: ReportRecord) -> str:
    """Explain the rows and marks of the table, and add further findings."""
    legend = legend_of(report)
    legend["/ clean"] = "accuracy under the source over all inputs / clean accuracy, in %"
    legend |= search_words(report) if report.ladder else {}
    bound = None if steps_of(report) else stated_bound(report)
    legend |= {"at least": at_least_line(Numbers(report), bound)} if bound else {}
    width = max(len(name) for name in legend)
    return "\n".join(
        [
            *(f"{name:{width}}  {words}" for name, words in legend.items()),
            *(f"data: {note}" for note in report.data.notes),
            *_median_notes(report),
            *_reference_notes(report),
            *_rare_notes(report),
            *_precision_notes(report),
            *_radius_notes(report),
            *(f"your frames: {line}" for line in describe_samples(report)),
            *filter(None, [worst_words(report)]),
            *trust_lines(report),
        ]
    )


def trust_lines(report: ReportRecord) -> list[str]:
    """Return the flags and the grade, which state how far to trust the numbers."""
    return [*_flag_notes(report), f"grade {report.grade.letter}: {report.grade.reason}"]


def legend_of(report: ReportRecord) -> dict[str, str]:
    """Explain the metrics of a report, by their names in a table."""
    asked = [row for row in report.numbers if row.bound is None or row.bound.asked]
    present = {row.metric for row in asked}
    bounds = [row.bound for row in bounds_of(report) if row.bound]
    named = " or ".join(dict.fromkeys(each.reference for each in bounds if each.reference))
    nouns = report.budget.nouns
    legend = {
        _NAMES[metric]: words.format(reference=nouns.refer_to(named), nouns=nouns)
        for metric, words in _LEGEND.items()
        if metric in present
    }
    if any(row.is_upper_bound for row in report.numbers):
        legend |= {name: words.format(nouns=nouns) for name, words in _OF_SEARCHES.items()}
    return legend


def _reference_notes(report: ReportRecord) -> list[str]:
    """A line for every set whose lowest source on the select split was a reference noise."""
    won = {made.name: made.winner for made in report.distributions if made.winner}
    kind = report.budget.nouns.noise
    worse = f"{kind} was worse than the learned {kind} on the select split"
    return [
        f"{row.name}: {won[row.subject.noise]} {worse}"
        for row in table_rows(report)
        if row.with_references and row.subject.noise in won
    ]


def _flag_notes(report: ReportRecord) -> list[str]:
    """A line for every flag: what was found for each source, then what that means."""
    lines = []
    for name in dict.fromkeys(flag.id for flag in report.flags if flag.id != UNRESOLVED):
        found: dict[str, list[str]] = {}
        for flag in report.flags:
            if flag.id == name:
                found.setdefault(flag.message, []).extend([flag.source] if flag.source else [])
        meaning = next(iter(found)).partition(": ")[2]
        alike = bool(meaning) and all(each.endswith(f": {meaning}") for each in found)
        ending = f": {meaning}" if alike else ""
        texts = [
            (f"{', '.join(sources)}, " if 0 < len(sources) < 4 else "") + text.removesuffix(ending)
            for text, sources in found.items()
        ]
        lines.append(f"{'*' if name == APPROXIMATE else '!'} {name}: {'; '.join(texts)}{ending}")
    return lines


def _rare_notes(report: ReportRecord) -> list[str]:
    """A line for every source under which splitting looked for rare failures."""
    lines = []
    for entry in report.rare:
        line = (
            f"{entry.source}: splitting followed {entry.followed:,} of {entry.unbroken:,} inputs"
            f" without a failure: failures found for {entry.found:,}, none found by following the"
            f" margin for {entry.below:,}, {entry.out_of_calls:,} out of calls"
        )
        if entry.unbroken > entry.followed:
            line += f"; the other {entry.unbroken - entry.followed:,} count as never failing"
        line += f"; an indication: largest estimate of those followed {entry.largest:.1e}"
        for row in report.numbers:
            if row.is_split and row.name == entry.source and row.own and row.value is not None:
                low, high = (100 * end for end in row.own.ends)
                ends = rounded_out(low, 3, up=False), rounded_out(high, 3, up=True)
                claim = claim_text(row.direction, f"{100 * row.value:.3f}", *ends)
                line += f", with splitting {row.metric.value} {claim}, {row.own.claim}"
        if entry.limit is not None:
            most = percent(entry.limit, "tiny-at-most")
            line += (
                f"; guaranteed: each of them fails with probability at most {most}, with"
                f" {_level(report)} confidence for each alone, by its"
                f" {entry.independent_draws:,} or more independent draws"
            )
        lines.append(line)
    if lines:
        lines.append(f"splitting: {RARE_ACCURACY}")
    if names := not_followed(report):
        lines.append(f"splitting did not follow: {', '.join(names)}")
    return lines


def _precision_notes(report: ReportRecord) -> list[str]:
    """State how many inputs and draws the requested precision took."""
    found = report.precision
    if not found or not found.reached:
        return []
    widest = max(width.half_width for width in found.widths.values())
    inputs, draws = found.rounds[-1]
    line = (
        f"precision: every PR and NPPR is within ±{100 * widest:.2f} percentage points by the interval"
        f" shown, with {inputs:,} of {found.available_inputs:,} inputs and {draws} draws each"
    )
    return [line]


def _radius_notes(report: ReportRecord) -> list[str]:
    """A line for every other radius: the first number of each source and metric."""
    lines, numbers, nouns = [], Numbers(report), report.budget.nouns
    for radius, rows in report.at_other_radii():
        firsts: dict[tuple[str, Metric], str] = {}
        for row in rows:
            claim = numbers.claim(row, sure=False, kind=str)
            loss = "loss " if row.metric.is_loss else ""
            text = f"{row.name} {'failed' if row.value is None else loss + claim}"
            firsts.setdefault((row.name, row.metric), text)
        where = nouns.at_radius.format(radius_text(report, radius))
        lines.append(f"{where}, {_level(report)} confidence: {', '.join(firsts.values())}")
    if lines and report.distributions:
        lines.append(nouns.scaled_briefly)
    return lines
