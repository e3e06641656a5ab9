"""The ladder: NPPR by what the noise knows and what it is made of, and how well it was searched.

PR of known noise is its top and AR its bottom. Sets grow downwards and to the right, so the true
values can only fall; values found by searches need not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nppr.core.tally import Metric
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STRUCTURES, WHITE, WITHOUT_INPUT
from nppr.report.findings import by_width, find_attacked, headline_of, table_rows
from nppr.report.model import ReportRecord, Rung
from nppr.report.number import Number
from nppr.report.printed_numbers import Numbers
from nppr.report.quotes import at_least_line, stated_bound
from nppr.report.tables import EMPTY, Cell, Column, Table

AT_LEAST = "at least"

_ENDS = {
    Metric.PR: "{nouns.fixed_noise}, the lowest of those observed",
    Metric.AR: "an attack: the worst {nouns.change} found for each input",
}
"""The words for both ends; those for the rungs between are those of `noise/rungs.py`."""

Place = tuple[float, str]
"""A column of the ladder: the floor and the structure."""


@dataclass(frozen=True)
class Step:
    """A row of the ladder: what the noise knows, in words, and its numbers by column.

    PR and AR have no rung and one number, at the smallest floor.
    """

    name: str
    threat: str
    numbers: dict[Place, Number]
    rung: Dependency | None = None


def steps_of(report: ReportRecord) -> list[Step]:
    """Return the rows of the ladder, from PR down to AR; empty without learned noise."""
    rows = table_rows(report)
    own = [(row.learned.admissible, row) for row in rows if row.learned and not row.is_repeated]
    learned = [(admissible, row) for admissible, row in own if admissible]
    if not learned:
        return []
    least, nouns = min(admissible.floor for admissible, _ in learned), report.budget.nouns
    references = {each.name for each in report.settings.sources if each.reference}

    def end(metric: Metric, row: Number | None, structure: str = ANY) -> list[Step]:
        threat = _ENDS[metric].format(nouns=nouns)
        return (
            [Step(f"{metric.value}, {row.name}", threat, {(least, structure): row})] if row else []
        )

    known = next((row for row in rows if row.is_fixed), None)
    has_white = any(admissible.structure == WHITE for admissible, _ in learned)
    white = has_white and known is not None and known.source in references
    steps = []
    for rung in sorted({admissible.rung for admissible, _ in learned}, key=lambda each: each.depth):
        same = [pair for pair in learned if pair[0].rung is rung]
        # If the lowest source of the set is a reference noise, it comes before the learned noise.
        widest = sorted(same, key=lambda pair: by_width(pair[1]))
        numbers = {(each.floor, each.structure): row for each, row in reversed(widest)}
        steps.append(Step(rung.knowledge, rung.threat_of(nouns), numbers, rung))
    return [
        *end(Metric.PR, known, WHITE if white else ANY),
        *steps,
        *end(Metric.AR, find_attacked(report)),
    ]


def places_of(steps: list[Step]) -> list[Place]:
    """Return the columns of the ladder: by floor, the smallest structure first."""
    found = {place for step in steps for place in step.numbers}
    return sorted(found, key=lambda each: (each[0], len(STRUCTURES[each[1]].path)))


def name_place(place: Place) -> str:
    """Return the heading of a column.

    >>> name_place((0.0, "white")), name_place((0.5, "any"))
    ('white', 'any, rho 0.5')
    """
    floor, structure = place
    return structure + (f", rho {floor:g}" if floor else "")


def ladder_table(report: ReportRecord) -> Table:
    """Return the ladder: a row per rung, a column per structure and floor."""
    steps, numbers, quoted = steps_of(report), Numbers(report), headline_of(report)
    places = places_of(steps)
    law = report.budget.nouns.noise
    restricted = any(structure != ANY for _, structure in places)
    made = " (rows) and what it is made of (columns)" if restricted else ""

    def head(place: Place) -> Column:
        plain = f"rho {place[0]:g}" if place[0] else "correct"
        return Column(name_place(place), name_place(place) if restricted else plain, number=True)

    def cell(row: Number | None) -> Cell:
        if row is None or row.value is None:
            return Cell(None, "failed") if row else EMPTY
        parts = (numbers.claim(row, row.quoted, cell=True),)
        # A terminal has no room for the word, which the caption states.
        text = numbers.claim(row, row.quoted, cell=True, kind=str).replace(" observed)", ")")
        return Cell(row.value, text, strong=row is quoted, parts=parts)

    return Table(
        f"The ladder: % correct, by what the {law} knows{made};"
        f" each with {100 * report.settings.measure.confidence:g} % confidence on its own,"
        f" in brackets the value observed under the {law} found",
        (
            Column("rung", f"the {law} knows"),
            *map(head, places),
        ),
        tuple(
            (Cell(each.rung or each.name, each.name), *map(cell, map(each.numbers.get, places)))
            for each in steps
        ),
        marked=next((at for at, s in enumerate(steps) if quoted in s.numbers.values()), None),
    )


def ladder_words(report: ReportRecord) -> dict[str, str]:
    """Return a sentence for every column and row of the ladder, with everyday examples."""
    steps, nouns = steps_of(report), report.budget.nouns
    structures = dict.fromkeys(structure for _, structure in places_of(steps))
    made = structures if nouns.kind == "noise" else ()
    words = {each: STRUCTURES[each].example for each in made}
    return words | {step.name: step.threat for step in steps}


def why_cells_are_empty(report: ReportRecord) -> str:
    """Explain the empty cells of white and stationary noise; empty if the ladder has none."""
    steps = steps_of(report)
    restricted = any(structure != ANY for _, structure in places_of(steps))
    deeper = any(step.rung and step.rung.depth > Dependency.LABEL.depth for step in steps)
    return WITHOUT_INPUT if restricted and deeper else ""


def threat_table(report: ReportRecord) -> Table:
    """Return the sentences on the ladder and on the bound, for terminals."""
    columns = (Column("rung", ""), Column("threat", ""))
    rows = [(Cell.of(name), Cell.of(words)) for name, words in ladder_words(report).items()]
    if why := why_cells_are_empty(report):
        rows.append((Cell.of("empty cells"), Cell.of(why)))
    if (bound := stated_bound(report)) is not None:
        line = at_least_line(Numbers(report), bound).removeprefix(f"{AT_LEAST} ")
        rows.append((Cell.of(AT_LEAST), Cell.of(line)))
    return Table("", columns, tuple(rows))


def story_text(numbers: Numbers, kind: type[str] = str) -> str:
    """Return what known, white, stationary and fixed noise leave, in sentences; `kind` as in a claim.

    Empty unless noise of a restricted structure was measured.
    """
    steps = steps_of(numbers.report)
    blind = next((step.numbers for step in steps if step.rung is Dependency.INDEPENDENT), {})
    found = [
        (STRUCTURES[place[1]].epithet, row)
        for place in places_of(steps)
        if (row := blind.get(place)) and not place[0] and row.value is not None
    ]
    if len(found) < 2:
        return ""
    known = [row for step in steps[:1] if not step.rung for row in step.numbers.values()]
    start = "Known noise ({}) leaves {} % of the correct answers correct. "
    text = kind("").join(kind(start).format(row.name, numbers.of(row)) for row in known)
    parts = [
        kind("the {} {}{} % (at most {} %)").format(
            words,
            "" if at else "found leaves ",
            numbers.of(row),
            numbers.of(row, "high", row.quoted),
        )
        for at, (words, row) in enumerate(found)
    ]
    worst = kind(", and ").join([kind(", ").join(parts[:-1]), parts[-1]])
    level = numbers.of(found[0][1], "confidence")
    ends = kind("T{}. Each upper end holds with {} % confidence on its own.").format(
        worst[1:], level
    )
    return text + ends


def search_table(report: ReportRecord) -> Table:
    """Return how well each worst noise was searched for; values in %, spread in percentage points."""
    numbers = Numbers(report)

    def number(form: str, name: str) -> Callable[[int], Cell]:
        def cell(at: int) -> Cell:
            value = getattr(report.ladder[at], name)
            if value is None:
                return EMPTY
            return Cell.made_of(value, numbers.at(form, "ladder", at, name))

        return cell

    def calls(at: int) -> Cell:
        rung = report.ladder[at]
        per = "" if rung.dependency.is_fitted else "/input"
        return Cell.made_of(rung.calls, numbers.at("count", "ladder", at, "calls"), per)

    def spread(at: int) -> Cell:
        """Print the spread; one search shows nothing of it."""
        found = report.ladder[at].spread
        return Cell.of("-") if found is None else Cell(found, f"{100 * found:.1f}")

    def rounds(at: int) -> Cell:
        curve = report.ladder[at].curve
        if curve is None:
            return EMPTY
        values = [numbers.at("percent", "ladder", at, "curve", "rounds", i)
                  for i in range(len(curve.rounds))]  # fmt: skip
        parts = [part for value in values for part in (", ", value)]
        return Cell.made_of(curve.rounds[-1], *parts[1:])

    def strongest(at: int) -> Cell:
        rung = report.ladder[at]
        if rung.strongest is None:
            return EMPTY
        value = numbers.at("percent", "ladder", at, "strongest_value")
        return Cell.made_of(rung.strongest_value, f"{rung.strongest} ", value)

    def column(name: str, heading: str = "", terminal: int | None = 0) -> Column:
        return Column(name, heading or name, number=True, terminal=terminal)

    def fact(words: Callable[[Rung], str]) -> Callable[[int], Cell]:
        return lambda at: Cell.of(words(report.ladder[at]))

    rungs = report.ladder
    shown: dict[str, bool] = {
        "rho": any(rung.floor for rung in rungs),
        "structure": any(rung.structure != ANY for rung in rungs),
        "smaller_radius": _has_smaller_radius(report),
    }
    columns: list[tuple[Column, Callable[[int], Cell]]] = [
        (Column("rho", "rho"), number("plain", "floor")),
        (Column("structure", "made of"), fact(lambda rung: rung.structure)),
        (Column("rung", "knows"), fact(lambda rung: rung.dependency.value)),
        (column("value", terminal=90), number("percent", "value")),  # also in the ladder above
        (column("calls"), calls),
        (column("rounds"), rounds),
        (Column("end", "end"), fact(_describe_end)),
        (column("spread"), spread),
        (column("fit", terminal=90), number("percent", "fit")),
        (column("smaller_radius", "1-rho"), number("percent", "smaller_radius")),
        (column("strongest", "rival"), strongest),
        (column("select_inputs", "inputs (rounds)", None), number("count", "select_inputs")),
    ]
    columns = [each for each in columns if shown.get(each[0].name, True)]
    order = sorted(range(len(rungs)), key=lambda at: rungs[at].admissible.place)
    law = report.budget.nouns.noise
    return Table(
        f"How well each worst {law} was searched for: observed %, spread in percentage points",
        tuple(column for column, _ in columns),
        tuple(tuple(cell(at) for _, cell in columns) for at in order),
        grouped=True,
    )


def _describe_end(rung: Rung) -> str:
    """Return how the search ended; empty if it was not judged."""
    if rung.curve is None:
        return ""
    if rung.curve.flat:
        return "flat"
    return "maximum" if len(rung.curve.rounds) > 1 else "one round"


SEARCH_WORDS = {
    "rho": "{nouns.floor_briefly}",
    "rounds": "on the select split after each round; per-input: half and all calls",
    "end": "flat: the last round gained < 1 point; maximum: no calls are left",
    "calls": "of this search and of those that it started from",
    "spread": "between searches with other random numbers; - for a single search",
    "fit": "observed on the fit split in the last steps",
    "1-rho": "observed with the same pattern at (1 - rho) r, no Uniform noise",
    "rival": "the lowest other source of the same set: {nouns.rivals}",
}
"""Explanations of the columns in the table of searches."""


def search_words(report: ReportRecord) -> dict[str, str]:
    """Explain the columns of the table of searches in the words of the budget."""
    return {
        name: words.format(nouns=report.budget.nouns)
        for name, words in SEARCH_WORDS.items()
        if (name != "1-rho" or _has_smaller_radius(report))
        and (name != "rho" or any(rung.floor for rung in report.ladder))
    }


def _has_smaller_radius(report: ReportRecord) -> bool:
    """Whether the smaller radius was tried; under a transformation it was not."""
    return any(rung.smaller_radius is not None for rung in report.ladder)
