"""The numbers of a study, each with its place on every axis: what tables and orders are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nppr.records import read_record
from nppr.report.model import Result
from nppr.report.run_files import read_run
from nppr.search.search_record import FinishedStageRecord, LearnedNoiseRecord
from nppr.study.graph import Cell, Graph, Place
from nppr.study.node_cache import NodeCache
from nppr.study.plan import Task
from nppr.study.schedule import Progressed
from nppr.tally import FloatArray, Metric

WEIGHTS = ("entropy_ratio", "max_weight", "min_weight", "std_weight", "realised_std")
NAMES = {
    Metric.NORMALISED_ACCURACY: "normalised",
    Metric.STRESS: "stress",
    Metric.NORMALISED_STRESS: "normalised_stress",
}


@dataclass(frozen=True)
class StudyRecord:
    """One measurement: its values by name, the intervals of those that have one, and its folder."""

    cell: Cell
    folder: Path
    values: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where it is on every axis."""
        return self.cell.place

    def rates(self) -> FloatArray:
        """Fraction of correct draws of the clean-correct inputs, `(N,)`."""
        lines = read_run(self.folder).report.per_input
        correct = lines["clean_correct"] == 1
        rates: FloatArray = np.asarray(lines["correct"] / lines["draws"], np.float64)[correct]
        return rates


def read_records(graph: Graph, cache: NodeCache, state: Progressed) -> list[StudyRecord]:
    """A record for every cell whose nodes are all finished."""
    known: dict[str, tuple[dict[str, float], dict[str, tuple[float, float]]]] = {}
    fits: dict[str, dict[str, float]] = {}
    records = []
    for cell in graph.cells:
        if cell.measure not in state.finished or (cell.fit and cell.fit not in state.finished):
            continue
        folder = cache.folder(cell.measure) / "run"
        if cell.measure not in known:
            known[cell.measure] = _measured(folder, state.finished[cell.measure].seconds)
        if cell.fit and cell.fit not in fits:
            fits[cell.fit] = _fitted(graph, cell.fit, cache, state.finished[cell.fit].seconds)
        values, intervals = known[cell.measure]
        fit = fits[cell.fit] if cell.fit else {}
        records.append(StudyRecord(cell, folder, {**values, **fit}, intervals))
    return records


def _measured(
    folder: Path, seconds: float
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """The first value of each kind in a report, with its interval."""
    values: dict[str, float] = {"seconds": seconds}
    intervals: dict[str, tuple[float, float]] = {}
    for row in read_run(folder).report.results:
        name = _name_of(row)
        if name is None or row.value is None:
            continue
        if name not in values:
            values[name] = row.value
            if row.low is not None and row.high is not None:
                intervals[name] = (row.low, row.high)
        if row.metric is not Metric.ACCURACY:
            values["calls"] = float(row.calls)
    return values, intervals


def _name_of(row: Result) -> str | None:
    if row.metric is Metric.ACCURACY:
        return "accuracy"
    if row.metric is Metric.PROB_ACC or row.with_references:
        return None
    return NAMES.get(row.metric, "robustness")


def _fitted(graph: Graph, hash_: str, cache: NodeCache, seconds: float) -> dict[str, float]:
    """What is known of a fit."""
    folder = cache.folder(hash_)
    (learned,) = (folder / "distributions").glob("*.safetensors")
    (finished,) = (folder / "fit").glob("*.done.safetensors")
    record = LearnedNoiseRecord.model_validate(read_record(learned)[1])
    stage = FinishedStageRecord.model_validate(read_record(finished)[1]).stage
    task = graph.nodes[hash_].task
    assert isinstance(task, Task)
    assert task.search is not None
    last = max(1, len(stage.loss) // 10)
    found = {name: float(getattr(record.diagnostics, name)) for name in WEIGHTS}
    epochs = stage.fit_calls / max(1, task.fit_inputs * task.search.recipe.draws)
    found |= {
        "fit_calls": float(stage.fit_calls),
        "fit_seconds": seconds,
        "fit_seconds_per_epoch": seconds / epochs if epochs else 0.0,
    }
    if stage.loss:
        found["fit_loss"] = sum(stage.loss[-last:]) / last
        found["fit_pr"] = sum(stage.running_pr[-last:]) / last
    return found
