"""The numbers of a study, each with its place on every axis: what tables and orders are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nppr.study.graph import Cell, Graph
from nppr.study.schedule import Finished
from nppr.types import Metric

__all__ = ["Record", "records_of"]

WEIGHTS = ("entropy_ratio", "max_weight", "min_weight", "std_weight", "realised_std")
NAMES = {
    Metric.NORMALISED_ACCURACY.value: "normalised",
    Metric.STRESS.value: "stress",
    Metric.NORMALISED_STRESS.value: "normalised_stress",
}


@dataclass(frozen=True)
class Record:
    """One measurement: its values by name, and the intervals of those that have one."""

    cell: Cell
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def place(self) -> Mapping[str, Any]:
        """Where it stands on every axis."""
        return self.cell.place


def records_of(graph: Graph, finished: Finished) -> list[Record]:
    """A record for every cell whose nodes are all there."""
    records = []
    for cell in graph.cells:
        wanted = [cell.measure, cell.clean, *([cell.fit] if cell.fit else [])]
        if all(hash_ in finished.results for hash_ in wanted):
            records.append(_record(cell, finished.results))
    return records


def _record(cell: Cell, results: Mapping[str, Mapping[str, Any]]) -> Record:
    measured = results[cell.measure]
    values = {
        "accuracy": results[cell.clean]["accuracy"],
        "seconds": measured["seconds"],
        "calls": float(measured["calls"]),
    }
    intervals: dict[str, tuple[float, float]] = {}
    for row in measured["rows"]:
        name = NAMES.get(row["metric"], "robustness")
        if name not in values and row["value"] is not None:
            values[name] = row["value"]
            if row["low"] is not None and row["high"] is not None:
                intervals[name] = (row["low"], row["high"])
    if cell.fit is not None:
        of_fit = _of_fit(results[cell.fit])
        values |= {name: value for name, value in of_fit.items() if value is not None}
    return Record(cell, values, intervals)


def _of_fit(fit: Mapping[str, Any]) -> dict[str, float | None]:
    """What is known of a fit; a number that was not finite is None."""
    diagnostics = fit["diagnostics"]
    found: dict[str, float | None] = {name: diagnostics[name] for name in WEIGHTS}
    epochs = fit["fit_calls"] / max(1, fit["fit_inputs"] * fit["draws"])
    found |= {
        "fit_calls": float(fit["fit_calls"]),
        "fit_seconds": fit["seconds"],
        "fit_seconds_per_epoch": fit["seconds"] / epochs if epochs else 0.0,
    }
    return {**found, "fit_loss": fit["loss"], "fit_pr": fit["pr"]}
