"""The numbers of a study, each with its place on every axis: what tables and orders are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache as remember
from pathlib import Path

import numpy as np

from nppr.core.tally import Direction, FloatArray, Metric
from nppr.report.run_files import read_run
from nppr.search.search_record import FinishedStageRecord, LearnedNoiseRecord
from nppr.study.graph import Cell, FitTask, Graph
from nppr.study.node_cache import Finished, NodeCache
from nppr.study.study_file import Place
from nppr.system.records import read_record

DIAGNOSTICS = ("entropy_ratio", "max_weight", "min_weight", "std_weight", "realised_std")
NAMES = {
    Metric.ACCURACY: "accuracy",
    Metric.NORMALISED_ACCURACY: "normalised",
    Metric.STRESS: "stress",
    Metric.NORMALISED_STRESS: "normalised_stress",
}
Interval = tuple[float, float]
_Measured = tuple[dict[str, float], dict[str, Interval], dict[str, Direction]]


@dataclass(frozen=True)
class StudyRecord:
    """One measurement: its values by name, their intervals and directions if any, and its folder."""

    cell: Cell
    folder: Path
    values: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    directions: Mapping[str, Direction] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where it is on every axis."""
        return self.cell.place

    def rates(self) -> FloatArray:
        """Fraction of draws classified correctly, of each clean-correct input, `(N,)`."""
        lines = read_run(self.folder).report.per_input
        correct = lines["clean_correct"] == 1
        rates: FloatArray = np.asarray(lines["correct"] / lines["draws"], np.float64)[correct]
        return rates


def read_records(
    graph: Graph, cache: NodeCache, finished: Mapping[str, Finished]
) -> list[StudyRecord]:
    """A record for every cell whose nodes are all finished."""

    @remember
    def measured(node: str) -> _Measured:
        return _measured(cache.folder(node) / "run", finished[node].seconds)

    @remember
    def fitted(node: str) -> dict[str, float]:
        task = graph.nodes[node].task
        assert isinstance(task, FitTask)
        return _fitted(cache.folder(node), task, finished[node].seconds)

    records = []
    for cell in graph.cells:
        if cell.measure in finished and (cell.fit is None or cell.fit in finished):
            values, intervals, directions = measured(cell.measure)
            values = {**values, **fitted(cell.fit)} if cell.fit else values
            folder = cache.folder(cell.measure) / "run"
            records.append(StudyRecord(cell, folder, values, intervals, directions))
    return records


def _measured(folder: Path, seconds: float) -> _Measured:
    """The first value of each kind in a report, with its direction and the interval to quote."""
    values: dict[str, float] = {"seconds": seconds}
    intervals: dict[str, Interval] = {}
    directions: dict[str, Direction] = {}
    report = read_run(folder).report
    for row in report.numbers:
        if row.value is None or row.metric is Metric.PROB_ACC or row.with_references:
            continue
        name = NAMES.get(row.metric, "robustness")
        if name not in values:
            values[name], used = row.value, row.shown
            if used is not None:
                intervals[name] = used.ends
            if row.direction is not None:
                directions[name] = row.direction
        if row.metric is not Metric.ACCURACY:
            values["calls"] = float(row.calls)
    return values, intervals, directions


def _fitted(folder: Path, task: FitTask, seconds: float) -> dict[str, float]:
    """What is known of a fit; of its loss the mean of the last tenth of its steps."""
    (learned,) = (folder / "distributions").glob("*.safetensors")
    (finished,) = (folder / "fit").glob("*.done.safetensors")
    diagnostics = LearnedNoiseRecord.model_validate(read_record(learned)[1]).diagnostics
    stage = FinishedStageRecord.model_validate(read_record(finished)[1]).stage
    epochs = stage.fit_calls / max(1, task.fit_inputs * task.search.recipe.draws)
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
