"""The tables of `nppr bound`: bounds by set of noise, and the largest sets for which a value holds."""

from __future__ import annotations

from nppr.core.tally import Claim, Metric
from nppr.report.model import ReportRecord
from nppr.report.number import BoundSubject, Number, StatedInterval
from nppr.report.printed_numbers import percent
from nppr.report.quotes import coverage, noise_words, stated_bound
from nppr.report.tables import EMPTY, Cell, Column, Table
from nppr.statistics.noise_sets import RATIO

_HEADINGS = {
    "test_set": "may see the input:\nthis test set ≥ %",
    "population": "\npopulation ≥ %",
    "estimate": "\nestimate %",
    "estimate_with_splitting": "estimate with\nrare failures %",
    "shared_test_set": "does not see it:\nthis test set ≥ %",
    "shared_population": "\npopulation ≥ %",
    "shared_estimate": "\nestimate %",
}
_WIDE = ("estimate", "shared_estimate")
"""Columns for which only a wide terminal has room where there are shared patterns too."""


def bounds_table(report: ReportRecord) -> Table:
    """Return the lower bounds for each set; its JSON is that of `nppr bound`."""
    found: dict[str, dict[str, Cell]] = {}
    for row, bound, interval in _bound_rows(report):
        assert bound.bounded is not None
        cells = found.setdefault(
            bound.bounded.label, {**_set_cells(bound), "draws": Cell.of(row.draws)}
        )
        estimate = row.value if row.metric is Metric.INFIMUM else None
        value, form = (interval.low, "at-least") if estimate is None else (estimate, "percent")
        cells[_column(row, bound, interval)] = Cell(value, percent(value, form))
        if bound.sees_input is False:
            cells["patterns"] = Cell.of(row.draws)
    shown = [name for name in _HEADINGS if any(name in cells for cells in found.values())]
    shared = any(name.startswith("shared") for name in shown)
    wide = _WIDE if shared else ()
    columns = (
        *_set_columns(report),
        Column("draws", "draws", number=True, terminal=None),
        *([Column("patterns", "patterns", number=True, terminal=None)] if shared else []),
        *(
            Column(name, _HEADINGS[name], number=True, terminal=110 if name in wide else 0)
            for name in shown
        ),
    )
    rows = tuple(tuple(cells.get(each.name, EMPTY) for each in columns) for cells in found.values())
    return Table("", columns, rows)


def sizes_table(report: ReportRecord) -> Table:
    """Return the largest set for which a value is still shown, by what the noise sees and by claim."""
    columns = (
        Column("sees_input", f"the {report.budget.nouns.noise}"),
        Column("claim", "holds for"),
        *_set_columns(report),
        Column("at_least", "at least %", number=True),
    )
    rows = []
    for _, bound, interval in _bound_rows(report):
        sight = "may see the input" if bound.sees_input else "does not see the input"
        cells = _set_cells(bound) | {
            "sees_input": Cell(bound.sees_input, sight),
            "claim": Cell.of(interval.claim.value),
            "at_least": Cell(interval.low, percent(interval.low, "at-least")),
        }
        rows.append(tuple(cells[each.name] for each in columns))
    return Table("", columns, tuple(rows))


def bounds_note(report: ReportRecord, *, sizes: bool = False) -> str:
    """Explain the numbers of the table of bounds, or of the table of `sizes`."""
    rows = _bound_rows(report)
    if not rows:
        return ""
    row, largest, _ = max(rows, key=lambda each: each[1].density_ratio or 0.0)
    level, nouns = f"{100 * row.confidence:g} % confidence", report.budget.nouns
    may_see = f"{nouns.a_noise} that may see the input"
    stated = stated_bound(report)
    blind_too = any(bound.sees_input is False for _, bound, _ in rows)
    if sizes:
        joint = "all lines of a claim together" if blind_too else "each line by itself"
        reading = (
            f"each line is the largest set for which the value asked for is shown, {level} for"
            f" {joint}, or the smallest set with its own bound if it is shown for none."
        )
    else:
        joint = "all bounds of a claim" if blind_too else "the bounds of a column"
        reading = f"{joint} hold together, {level}."
    meaning = f"Fraction of correct draws under {nouns.all_noise} of a set, such as {nouns.noises}"
    parts = [f"{meaning} {noise_words(report, largest)}; {reading}"]
    if any(row.metric is Metric.INFIMUM and bound.sees_input for row, bound, _ in rows):
        parts.append(f"An estimate is not a bound; that for {may_see} is too high on average.")
    named = largest if report.budget.parameters else stated and stated.bound
    parts.append(coverage(report, named) if named else "")
    if blind_too:
        parts.append(
            f"The bound for {may_see} also holds for {nouns.blind_noise}, so the larger of the two is"
            " printed there. If both are the same, more --patterns may raise the second."
        )
    return " ".join(each for each in parts if each)


def _bound_rows(report: ReportRecord) -> list[tuple[Number, BoundSubject, StatedInterval]]:
    """Every bound and estimate with its set, once for each interval."""
    metrics = (Metric.BOUND, Metric.INFIMUM)
    return [
        (row, row.bound, interval)
        for row in report.numbers
        if row.bound and row.metric in metrics
        for interval in row.intervals
    ]


def _set_columns(report: ReportRecord) -> list[Column]:
    """The columns that name a set: its kind for programs, c and d or e where it has them."""
    bounds = [bound for _, bound, _ in _bound_rows(report)]
    size = "d" if any(bound.noise_set in ("contaminated", "tv") for bound in bounds) else "e"
    c_width = None if all(bound.density_ratio is None for bound in bounds) else 0
    size_width = None if all(bound.size is None for bound in bounds) else 0
    return [
        Column("noise_set", "set", terminal=None),
        Column("density_ratio", "c", number=True, terminal=c_width),
        Column("size", size, number=True, terminal=size_width),
    ]


def _set_cells(bound: BoundSubject) -> dict[str, Cell]:
    def number(value: float | None) -> Cell:
        return EMPTY if value is None else Cell(value, f"{value:g}")

    return {
        "noise_set": Cell.of(bound.noise_set or RATIO),
        "density_ratio": number(bound.density_ratio),
        "size": number(bound.size),
    }


def _column(row: Number, bound: BoundSubject, interval: StatedInterval) -> str:
    shared = "shared_" if bound.sees_input is False else ""
    if row.metric is Metric.INFIMUM:
        return "estimate_with_splitting" if row.is_split else f"{shared}estimate"
    return shared + ("test_set" if interval.claim is Claim.TEST_SET else "population")
