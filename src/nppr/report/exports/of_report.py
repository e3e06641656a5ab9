"""The comparison table of one run, for export."""

from __future__ import annotations

from nppr.report.exports.table import Cell, Column, Table
from nppr.report.quoting import guaranteed
from nppr.report.schema import Report, Result
from nppr.report.tables import table_rows
from nppr.types import Direction, Metric

__all__ = ["table_of"]

SIGNS = {Direction.UPPER_BOUND: "≤ ", Direction.LOWER_BOUND: "≥ "}
RATIOS = {Metric.STRESS: Metric.NORMALISED_STRESS}


def table_of(report: Report) -> Table:
    """One row a source and metric, in the order of the console: shares in % for readers.

    `stress` is a loss and printed as it is. A source that failed has a row that says why.
    """
    level = f"{100 * report.settings['confidence']:g} %"
    losses = any(row.metric is Metric.STRESS for row in report.results)
    columns = (
        Column("metric", "metric"),
        Column("source", "source"),
        Column("value", "value" if losses else "value %", number=True),
        Column("interval", f"{level} interval", number=True, interval=True),
        Column("guaranteed", "guaranteed", number=True, interval=True),
        Column("normalised", "/ clean %", number=True),
        Column("inputs", "inputs", number=True),
        Column("draws", "draws", number=True),
        Column("calls", "calls", number=True),
        Column("claim", "about"),
        Column("flags", "flags"),
        Column("error", "error"),
    )
    caption = (
        f"{report.classifier['name']} on {report.data['name']},"
        f" budget {report.budget['norm']} {report.budget['text']}, seed {report.seed}"
    )
    return Table(caption, columns, tuple(_row(report, row) for row in table_rows(report)))


def _row(report: Report, row: Result) -> tuple[Cell, ...]:
    known = row.value is not None
    return (
        Cell.of(row.metric.value),
        Cell.of(row.source),
        Cell(row.value, SIGNS.get(row.direction or Direction.ESTIMATE, "") + _number(row))
        if known
        else Cell(None, "skipped" if row.flags else "failed"),
        _interval(row),
        _guaranteed(report, row),
        _ratio(report, row),
        *(
            Cell(count if known else None, f"{count:,}" if known else "")
            for count in (row.inputs, row.draws, row.calls)
        ),
        Cell.of(row.claim.value if row.claim else ""),
        Cell.of(" ".join(row.flags)),
        Cell.of(row.error),
    )


def _number(row: Result) -> str:
    assert row.value is not None
    return _printed(row.metric, row.value)


def _printed(metric: Metric, value: float) -> str:
    return f"{value:.3g}" if metric is Metric.STRESS else f"{100 * value:.1f}"


def _interval(row: Result) -> Cell:
    if row.low is None or row.high is None:
        return Cell(None, "")
    ends = (_printed(row.metric, row.low), _printed(row.metric, row.high))
    return Cell((row.low, row.high), "-".join(ends))


def _guaranteed(report: Report, row: Result) -> Cell:
    """The interval of this number that holds at any size of sample."""
    found = guaranteed(report, row)
    if found is None or found.high is None:
        return Cell(None, "")
    cell = _interval(found)
    searched = row.direction is Direction.UPPER_BOUND
    return Cell(cell.value, f"≤ {_printed(row.metric, found.high)}") if searched else cell


def _ratio(report: Report, row: Result) -> Cell:
    """Accuracy under the source over all inputs / clean accuracy; of a loss, by the clean loss."""
    found = report.headline(row.source, RATIOS.get(row.metric, Metric.NORMALISED_ACCURACY))
    if found is None or found.value is None:
        return Cell(None, "")
    return Cell(found.value, f"{100 * found.value:.1f}")
