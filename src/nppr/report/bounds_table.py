"""The tables of `nppr bound`: bounds by set of noise, and the largest sets for which a value holds."""

from __future__ import annotations

from nppr.core.tally import Claim, Metric
from nppr.report.at_least_line import coverage, noise_words, stated_bound
from nppr.report.model import SPLITTING, ReportRecord, Result
from nppr.report.numbers import percent
from nppr.report.tables import Cell, Column, Table
from nppr.statistics.noise_sets import RATIO

_EMPTY = Cell(None, "")

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
    """The lower bounds for each set; its JSON is that of `nppr bound`."""
    found: dict[str, dict[str, Cell]] = {}
    for row in _bound_rows(report):
        assert row.bounded is not None
        cells = found.setdefault(
            row.bounded.label, {**_set_cells(row), "draws": Cell.of(row.draws)}
        )
        if row.value is not None:
            form = "percent" if row.metric is Metric.INFIMUM else "at-least"
            cells[_column(row)] = Cell(row.value, percent(row.value, form))
            if row.sees_input is False:
                cells["patterns"] = Cell.of(row.draws)
    shown = [name for name in _HEADINGS if any(name in cells for cells in found.values())]
    shared = any(name.startswith("shared") for name in shown)
    columns = (
        *_set_columns(report),
        Column("draws", "draws", number=True, terminal=None),
        *([Column("patterns", "patterns", number=True, terminal=None)] if shared else []),
        *(
            Column(
                name, _HEADINGS[name], number=True,
                terminal=110 if shared and name in _WIDE else 0,
            )
            for name in shown
        ),
    )  # fmt: skip
    rows = tuple(
        tuple(cells.get(each.name, _EMPTY) for each in columns) for cells in found.values()
    )
    return Table("", columns, rows)


def sizes_table(report: ReportRecord) -> Table:
    """The largest set for which a given value still is shown, by what the noise sees and by claim."""
    columns = (
        Column("sees_input", f"the {report.budget.nouns.noise}"),
        Column("claim", "holds for"),
        *_set_columns(report),
        Column("at_least", "at least %", number=True),
    )
    rows = []
    for row in _bound_rows(report):
        cells = _set_cells(row) | {
            "sees_input": Cell(
                row.sees_input, "may see the input" if row.sees_input else "does not see the input"
            ),
            "claim": Cell.of(row.claim and row.claim.value),
            "at_least": Cell(row.value, percent(row.value or 0.0, "at-least")),
        }
        rows.append(tuple(cells[each.name] for each in columns))
    return Table("", columns, tuple(rows))


def bounds_note(report: ReportRecord, *, sizes: bool = False) -> str:
    """What the numbers of a table mean: of the bounds, or of the `sizes` for which a value holds."""
    rows = _bound_rows(report)
    if not rows:
        return ""
    row = max(rows, key=lambda each: each.density_ratio or 0.0)
    assert row.bounded is not None
    level = f"{100 * row.confidence:g} % confidence"
    words = noise_words(report, row)
    nouns = report.budget.nouns
    may_see = f"{nouns.a_noise} that may see the input"
    stated = stated_bound(report)
    meaning = f"Fraction of correct draws under {nouns.all_noise} of a set,"
    meaning += f" such as {nouns.noises} {words};"
    blind_too = any(row.sees_input is False for row in rows)
    if sizes:
        joint = "all lines of a claim together" if blind_too else "each line by itself"
        meaning += (
            f" each line is the largest set for which the value asked for is shown, {level} for"
            f" {joint}, or the smallest set with its own bound if it is shown for none."
        )
    else:
        joint = "all bounds of a claim" if blind_too else "the bounds of a column"
        meaning += f" {joint} hold together, {level}."
    parts = [meaning]
    if any(row.metric is Metric.INFIMUM and row.sees_input for row in rows):
        parts.append(f"An estimate is not a bound; that for {may_see} is too high on average.")
    named = row if report.budget.parameters else stated
    parts += [coverage(report, named)] if named is not None else []
    if blind_too:
        parts.append(
            f"The bound for {may_see} also holds for {nouns.blind_noise}, so the larger of the two is"
            " printed there. If both are the same, more --patterns may raise the second."
        )
    return " ".join(each for each in parts if each)


def _bound_rows(report: ReportRecord) -> list[Result]:
    metrics = (Metric.BOUND, Metric.INFIMUM)
    return [row for row in report.results if row.metric in metrics and row.noise_set is not None]


def _set_columns(report: ReportRecord) -> list[Column]:
    """The columns that name a set: its kind for programs, c and d or e where it has them."""
    rows = _bound_rows(report)
    mass = any(row.noise_set in ("contaminated", "tv") for row in rows)
    has_c, has_size = (
        any(getattr(row, name) is not None for row in rows) for name in ("density_ratio", "size")
    )
    return [
        Column("noise_set", "set", terminal=None),
        Column("density_ratio", "c", number=True, terminal=0 if has_c else None),
        Column("size", "d" if mass else "e", number=True, terminal=0 if has_size else None),
    ]


def _set_cells(row: Result) -> dict[str, Cell]:
    def number(value: float | None) -> Cell:
        return _EMPTY if value is None else Cell(value, f"{value:g}")

    return {
        "noise_set": Cell.of(row.noise_set or RATIO),
        "density_ratio": number(row.density_ratio),
        "size": number(row.size),
    }


def _column(row: Result) -> str:
    shared = "shared_" if row.sees_input is False else ""
    if row.metric is Metric.INFIMUM:
        return "estimate_with_splitting" if row.method == SPLITTING else f"{shared}estimate"
    return shared + ("test_set" if row.claim is Claim.TEST_SET else "population")
