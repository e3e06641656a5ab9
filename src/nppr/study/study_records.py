"""The measurements of a finished study: values with their places, for tables and orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from nppr.core.tally import Direction, FloatArray, Metric
from nppr.report.run_files import read_run
from nppr.search.search_record import FinishedStageRecord, LearnedNoiseRecord
from nppr.study.graph import FitWork, Graph, StudyCell
from nppr.study.node_cache import FinishedNode, NodeCache
from nppr.study.study_file import Place
from nppr.system.records import read_record

DIAGNOSTICS = ("entropy_ratio", "max_weight", "min_weight", "std_weight", "realised_std")
VALUE_NAMES = {
    Metric.ACCURACY: "accuracy",
    Metric.NORMALISED_ACCURACY: "normalised",
    Metric.STRESS: "stress",
    Metric.NORMALISED_STRESS: "normalised_stress",
}
Interval = tuple[float, float]
MeasuredValues = tuple[dict[str, float], dict[str, Interval], dict[str, Direction]]


@dataclass(frozen=True)
class StudyRecord:
    """One measurement: its values by name, with their intervals and directions, and its folder."""

    cell: StudyCell
    folder: Path
    values: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    directions: Mapping[str, Direction] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Its values on all axes."""
        return self.cell.place

    def rates(self) -> FloatArray:
        """Return the fraction of draws classified correctly for each clean-correct input, `(N,)`."""
        lines = read_run(self.folder).report.per_input
        correct = lines["clean_correct"] == 1
        rates: FloatArray = np.asarray(lines["correct"] / lines["draws"], np.float64)[correct]
        return rates


def read_records(
    graph: Graph, folders: NodeCache, finished: Mapping[str, FinishedNode]
) -> list[StudyRecord]:
    """Return a record for every cell whose nodes are all finished."""

    @cache
    def measured(node: str) -> MeasuredValues:
        return _read_measured(folders.folder(node) / "run", finished[node].seconds)

    @cache
    def fitted(node: str) -> dict[str, float]:
        work = graph.nodes[node].work
        assert isinstance(work, FitWork)
        return _read_fitted(folders.folder(node), work, finished[node].seconds)

    records = []
    for cell in graph.cells:
        if cell.measure in finished and (cell.fit is None or cell.fit in finished):
            values, intervals, directions = measured(cell.measure)
            values = {**values, **fitted(cell.fit)} if cell.fit else values
            folder = folders.folder(cell.measure) / "run"
            records.append(StudyRecord(cell, folder, values, intervals, directions))
    return records


def _read_measured(folder: Path, seconds: float) -> MeasuredValues:
    """Return the first value of each kind in a report, with its direction and the interval to quote."""
    values: dict[str, float] = {"seconds": seconds}
    intervals: dict[str, Interval] = {}
    directions: dict[str, Direction] = {}
    report = read_run(folder).report
    for row in report.numbers:
        if row.value is None or row.metric is Metric.PROB_ACC or row.with_references:
            continue
        name = VALUE_NAMES.get(row.metric, "robustness")
        if name not in values:
            values[name], used = row.value, row.shown
            if used is not None:
                intervals[name] = used.ends
            if row.direction is not None:
                directions[name] = row.direction
        if row.metric is not Metric.ACCURACY:
            values["calls"] = float(row.calls)
    return values, intervals, directions


def _read_fitted(folder: Path, work: FitWork, seconds: float) -> dict[str, float]:
    """Return the values of a fit; its loss and PR are means of the last tenth of its steps."""
    (learned,) = (folder / "distributions").glob("*.safetensors")
    (finished,) = (folder / "fit").glob("*.done.safetensors")
    diagnostics = LearnedNoiseRecord.model_validate(read_record(learned)[1]).diagnostics
    stage = FinishedStageRecord.model_validate(read_record(finished)[1]).stage
    epochs = stage.fit_calls / max(1, work.data.sizes.fit * work.search.recipe.draws)
    found = {name: float(getattr(diagnostics, name)) for name in DIAGNOSTICS}
    found |= {
        "fit_calls": float(stage.fit_calls),
        "fit_seconds": seconds,
        "fit_seconds_per_epoch": seconds / epochs if epochs else 0.0,
    }
    if stage.loss:
        last = max(1, len(stage.loss) // 10)
        found["fit_loss"] = sum(stage.loss[-last:]) / last
        found["fit_pr"] = sum(stage.running_pr[-last:]) / last
    return found
