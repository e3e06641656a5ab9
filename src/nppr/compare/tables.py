"""A comparison as tables: for readers one row a metric, for a paper one row a classifier."""

from __future__ import annotations

from nppr.compare.schema import Compared, Comparison, Difference, Standing
from nppr.compare.wording import (
    letter,
    percent,
    points_range,
    share_range,
    short_method,
    signed,
    titled,
)
from nppr.report.exports import Cell, Column, Table

__all__ = ["differences_table", "long_table", "paper_table", "values_table"]

LONG = (
    "kind", "metric", "source", "run", "against", "value", "low", "high", "method",
    "guaranteed_low", "guaranteed_high", "unpaired_low", "unpaired_high", "separated", "rank",
    "std", "seeds", "normalised", "normalised_std", "inputs", "draws", "flags", "error",
)  # fmt: skip


def values_table(comparison: Comparison, *, short: bool = False) -> Table:
    """One row a metric and source, one column an entry; bold where nothing is surely better.

    Nothing is bold in a row in which no two entries separate. `short` heads are letters.
    """
    columns = [Column("metric", "metric"), Column("source", "source")]
    columns += [
        Column(entry.name, letter(at) if short else titled(comparison, at), number=True)
        for at, entry in enumerate(comparison.entries)
    ]
    rows = [
        (
            Cell.of(result.metric.value),
            Cell.of(result.source),
            *(_value_cell(result, standing) for standing in result.standings),
        )
        for result in comparison.results
    ]
    spread = any(s.std is not None for result in comparison.results for s in result.standings)
    caption = f"Values in % ({100 * comparison.confidence:g} % interval over inputs)"
    if spread:
        caption += ", ± standard deviation over seeds"
    caption += ". Bold: rank 1 where ranks differ."
    return Table(caption, tuple(columns), tuple(rows))


def paper_table(comparison: Comparison, *, normalised: bool = False) -> Table:
    """One row an entry, one column a metric and source: mean ± standard deviation over seeds."""
    shown = [
        result
        for result in comparison.results
        if not normalised or any(s.normalised is not None for s in result.standings)
    ]
    names = [f"{result.metric.value} {result.source}" for result in shown]
    heads = [Column("data", "data"), Column("run", "model")]
    columns = [*heads, *(Column(name, name, number=True) for name in names)]
    rows = [
        (
            Cell(entry.data, entry.data),
            Cell(entry.name, titled(comparison, at)),
            *(_paper_cell(r, r.standings[at], normalised=normalised) for r in shown),
        )
        for at, entry in enumerate(comparison.entries)
    ]
    what = "accuracy under the source over all inputs / clean accuracy" if normalised else "values"
    caption = f"{what[0].upper()}{what[1:]}, in %"
    seeds = max(len(entry.runs) for entry in comparison.entries)
    caption += f", mean ± standard deviation over up to {seeds} seeds" if seeds > 1 else ""
    budgets = ", ".join(dict.fromkeys(entry.budget for entry in comparison.entries))
    caption += f"; budget {budgets}. AR and NPPR are upper bounds."
    return Table(caption, tuple(columns), tuple(rows))


def differences_table(comparison: Comparison) -> Table:
    """One row a pair of entries and a metric, in percentage points."""
    level = f"{100 * comparison.confidence:g} %"
    columns = (
        Column("metric", "metric"),
        Column("source", "source"),
        Column("pair", "pair"),
        Column("difference", "difference", number=True),
        Column("interval", f"{level} interval", number=True, interval=True),
        Column("guaranteed", "guaranteed", number=True, interval=True),
        Column("unpaired", "if unpaired", number=True, interval=True),
        Column("method", "method"),
        Column("separated", "separated"),
    )
    rows = [
        _difference_row(result, difference)
        for result in comparison.results
        for difference in result.differences
    ]
    names = ", ".join(titled(comparison, at) for at in range(len(comparison.entries)))
    caption = (
        f"Differences in percentage points ({level} intervals over inputs) of {names}. Separated: 0 is"
        " outside the interval at the confidence of all pairs of a metric and source together."
    )
    return Table(caption, columns, tuple(rows))


def long_table(comparison: Comparison) -> Table:
    """One row a number, values and differences alike, for programs."""
    names = [entry.name for entry in comparison.entries]
    rows = []
    for result in comparison.results:
        common = {"metric": result.metric.value, "source": result.source}
        for standing in result.standings:
            facts = standing.model_dump(exclude={"entry", "flags", "direction", "confidence"})
            seeds = len(comparison.entries[standing.entry].runs)
            facts |= {"kind": "value", "run": names[standing.entry], "seeds": seeds}
            rows.append(facts | common | {"flags": " ".join(standing.flags)})
        for difference in result.differences:
            facts = difference.model_dump(
                exclude={"first", "second", "flags", "paired", "confidence"}
            )
            pair = {"run": names[difference.first], "against": names[difference.second]}
            facts |= {"kind": "difference", **pair}
            rows.append(facts | common | {"flags": " ".join(difference.flags)})
    columns = tuple(Column(name, name) for name in LONG)
    cells = tuple(tuple(Cell.of(row.get(name)) for name in LONG) for row in rows)
    return Table("Values and differences, as shares", columns, cells)


def _value_cell(result: Compared, standing: Standing) -> Cell:
    if standing.value is None:
        return Cell(None, short_error(standing))
    text = percent(standing)
    if standing.low is not None and standing.high is not None:
        mark = "*" if standing.flags else ""
        text += f" ({share_range(standing.low, standing.high)}){mark}"
    return Cell(standing.value, text, strong=_leads(result, standing))


def _paper_cell(result: Compared, standing: Standing, *, normalised: bool) -> Cell:
    value = standing.normalised if normalised else standing.value
    std = standing.normalised_std if normalised else standing.std
    if value is None:
        return Cell(None, "-")
    text = f"{100 * value:.2f}" + ("" if std is None else f" ± {100 * std:.2f}")
    return Cell(value, text, strong=not normalised and _leads(result, standing))


def _difference_row(result: Compared, difference: Difference) -> tuple[Cell, ...]:
    low, high = difference.guaranteed_low, difference.guaranteed_high
    sure = Cell(None, "")
    if low is not None and high is not None:
        sure = Cell((low, high), points_range(low, high))
    apart = (difference.unpaired_low, difference.unpaired_high)
    mark = "*" if difference.flags else ""
    return (
        Cell.of(result.metric.value),
        Cell.of(result.source),
        Cell.of(f"{letter(difference.first)} - {letter(difference.second)}"),
        Cell(difference.value, signed(difference.value), strong=difference.separated),
        Cell(
            (difference.low, difference.high),
            points_range(difference.low, difference.high) + mark,
        ),
        sure,
        Cell(apart, points_range(*apart) if difference.paired else ""),
        Cell(difference.method, short_method(difference.method)),
        Cell(difference.separated, "yes" if difference.separated else "no"),
    )


def _leads(result: Compared, standing: Standing) -> bool:
    ranks = {each.rank for each in result.standings if each.rank is not None}
    return standing.rank == 1 and len(ranks) > 1


def short_error(standing: Standing) -> str:
    """Why there is no number, in a word or two."""
    return "not measured" if "not measured" in (standing.error or "") else "failed"
