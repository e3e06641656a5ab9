"""The ladder: NPPR by what the noise knows and how random it must be, and how well it was searched.

PR of known noise is its top and AR its bottom. Each rung contains the one above it, so that numbers can
only fall on the way down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from nppr.core.tally import Metric
from nppr.report.findings import by_width, find_attacked, headline_of, table_rows
from nppr.report.model import ReportRecord
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


@dataclass(frozen=True)
class Step:
    """A row of the ladder: its name, which threat it is, and its numbers by floor.

    PR and AR have no floor; their one number is at the smallest.
    """

    name: str
    threat: str
    numbers: dict[float, Number]


def steps_of(report: ReportRecord) -> list[Step]:
    """Return the rows of the ladder, from PR down to AR; empty without learned noise."""
    rows = table_rows(report)
    own = [(row.learned.admissible, row) for row in rows if row.learned and not row.is_repeated]
    learned = [(admissible, row) for admissible, row in own if admissible]
    if not learned:
        return []
    least, nouns = min(admissible.floor for admissible, _ in learned), report.budget.nouns
    known = (row for row in rows if row.is_fixed)
    ends = {Metric.PR: next(known, None), Metric.AR: find_attacked(report)}
    top, bottom = (
        [Step(f"{end.value}, {row.name}", _ENDS[end].format(nouns=nouns), {least: row})]
        if row
        else []
        for end, row in ends.items()
    )
    steps = []
    sets = {replace(admissible, floor=0.0) for admissible, _ in learned}
    for each in sorted(sets, key=lambda each: each.place):
        same = [pair for pair in learned if replace(pair[0], floor=0.0) == each]
        # If the lowest source of the set is a reference noise, it comes before the learned noise.
        widest = sorted(same, key=lambda pair: by_width(pair[1]))
        numbers = {admissible.floor: row for admissible, row in reversed(widest)}
        steps.append(Step(each.label, each.rung.threat_of(nouns), numbers))
    return [*top, *steps, *bottom]


def ladder_table(report: ReportRecord) -> Table:
    """Return the ladder: a row per rung, a column per floor."""
    steps, numbers, quoted = steps_of(report), Numbers(report), headline_of(report)
    floors = sorted({floor for step in steps for floor in step.numbers})
    law = report.budget.nouns.noise

    def cell(row: Number | None) -> Cell:
        if row is None or row.value is None:
            return Cell(None, "failed") if row else EMPTY
        text = numbers.claim(row, row.quoted, cell=True, kind=str)
        parts = (numbers.claim(row, row.quoted, cell=True),)
        return Cell(row.value, text, strong=row is quoted, parts=parts)

    return Table(
        f"The ladder: % correct, by what the {law} knows and how random it must be (rho);"
        f" each with {100 * report.settings.measure.confidence:g} % confidence on its own,"
        f" observed under the {law} found",
        (
            Column("rung", f"the {law} knows"),
            *(Column(f"rho={floor:g}", f"rho {floor:g}", number=True) for floor in floors),
            Column("threat", "which threat it is", terminal=None),
        ),
        tuple(
            (Cell.of(each.name), *map(cell, map(each.numbers.get, floors)), Cell.of(each.threat))
            for each in steps
        ),
        marked=next((at for at, s in enumerate(steps) if quoted in s.numbers.values()), None),
    )


def threat_table(report: ReportRecord) -> Table:
    """Return the sentences on the rungs and on the bound, for terminals without room beside numbers."""
    columns = (Column("rung", ""), Column("threat", ""))
    rows = [(Cell.of(step.name), Cell.of(step.threat)) for step in steps_of(report)]
    if (bound := stated_bound(report)) is not None:
        line = at_least_line(Numbers(report), bound).removeprefix(f"{AT_LEAST} ")
        rows.append((Cell.of(AT_LEAST), Cell.of(line)))
    return Table("", columns, tuple(rows))


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

    def strongest(at: int) -> Cell:
        rung = report.ladder[at]
        if rung.strongest is None:
            return EMPTY
        value = numbers.at("percent", "ladder", at, "strongest_value")
        return Cell.made_of(rung.strongest_value, f"{rung.strongest} ", value)

    def column(name: str, heading: str = "", terminal: int | None = 0) -> Column:
        return Column(name, heading or name, number=True, terminal=terminal)

    columns: list[tuple[Column, Callable[[int], Cell]]] = [
        (Column("rho", "rho"), number("plain", "floor")),
        (Column("rung", "rung"), lambda at: Cell.of(report.ladder[at].dependency.value)),
        (column("value", terminal=90), number("percent", "value")),  # also in the ladder above
        (column("calls"), calls),
        (column("half"), number("percent", "half")),
        (column("full", "all"), number("percent", "full")),
        (column("spread"), spread),
        (column("fit"), number("percent", "fit")),
        (column("smaller_radius", "1-rho"), number("percent", "smaller_radius")),
        (column("strongest", "rival"), strongest),
        (column("select_inputs", "inputs (half, all)", None), number("count", "select_inputs")),
    ]
    if not _has_smaller_radius(report):
        columns = [each for each in columns if each[0].name != "smaller_radius"]
    places = [(rung.floor, rung.dependency.depth) for rung in report.ladder]
    order = sorted(range(len(places)), key=places.__getitem__)
    law = report.budget.nouns.noise
    return Table(
        f"How well each worst {law} was searched for: observed %, spread in percentage points",
        tuple(column for column, _ in columns),
        tuple(tuple(cell(at) for _, cell in columns) for at in order),
        grouped=True,
    )


SEARCH_WORDS = {
    "rho": "{nouns.floor_briefly}",
    "half, all": "observed after half and all of the calls, on inputs used to choose",
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
        if name != "1-rho" or _has_smaller_radius(report)
    }


def _has_smaller_radius(report: ReportRecord) -> bool:
    """Whether the smaller radius was tried; under a transformation it was not."""
    return any(rung.smaller_radius is not None for rung in report.ladder)
