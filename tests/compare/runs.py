"""Runs whose numbers are known, without a classifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nppr.core.tally import BoolArray, Evaluate, IntArray, Metric, Tally
from nppr.report import Number, PerInput, Report, RunFiles, per_input_of
from nppr.report.model import (
    SCHEMA_VERSION,
    DataRecord,
    Environment,
    Grade,
    SettingsRecord,
    SourceRecord,
    SplitSizes,
    Timing,
)
from nppr.search.search_record import BudgetRecord, ClassifierRecord
from nppr.settings import Measure
from nppr.statistics.estimates import (
    estimate_accuracy,
    estimate_adversarial,
    estimate_normalised,
    estimate_probabilistic,
)
from nppr.system.records import write_whole
from report.page.made_runs import make_numbers


@dataclass(frozen=True, eq=False)
class Measured:
    """Correct draws of every input under one source."""

    metric: Metric
    correct: IntArray
    draws: int


def tally(correct: IntArray, draws: int, clean: BoolArray) -> Tally[Evaluate]:
    number = len(correct)
    return Tally(
        kind=Evaluate, indices=np.arange(number), labels=np.zeros(number, np.int64),
        clean_correct=clean, correct=correct, draws=draws, calls=number * draws, micro_batch=64,
    )  # fmt: skip


def a_run(
    folder: str | Path,
    correct: BoolArray,
    sources: dict[str, Measured],
    *,
    classifier: str = "net",
    fingerprint: str = "data",
    seed: int = 0,
    eps: str = "0.1",
    options: dict[str, dict[str, Any]] | None = None,
    **settings: Any,
) -> RunFiles:
    """A finished run of these measurements, which lies nowhere.

    A source named `nppr` or `nppr:floor=0.5` is learned noise.
    """
    measured = {name: settings.pop(name) for name in Measure.model_fields if name in settings}
    tallies = {name: tally(each.correct, each.draws, correct) for name, each in sources.items()}
    clean = tally(correct.astype(np.int64), 1, np.ones(len(correct), np.bool_))
    rows = make_numbers([estimate_accuracy(clean, 0.95)], "clean")
    for name, each in sources.items():
        rows += rows_of(name, each.metric, tallies[name])
    report = Report(
        schema_version=SCHEMA_VERSION,
        nppr_version="0.1.0",
        classifier=ClassifierRecord(
            name=classifier, weights=None, mean=None, std=None, fingerprint=classifier, features=None
        ),
        data=DataRecord(
            name="made", classes=2, class_names=(), shape=(1, 8, 8), split=None, resize=None,
            inputs=SplitSizes(fit=0, select=0, evaluate=len(correct)), fingerprint=fingerprint,
        ),
        budget=BudgetRecord(norm="linf", radius=float(eps), text=eps),
        seed=seed,
        settings=SettingsRecord(
            sources=tuple(
                SourceRecord(name=name, kind=name, metric=each.metric,
                             options=(options or {}).get(name, {}))
                for name, each in sources.items()
                if each.metric is not Metric.NPPR
            ),
            measure=Measure(**{"draws": 16, "seed": seed, **measured}),
            **settings,
        ),
        numbers=tuple(rows),
        grade=Grade(letter="A", reason="no flag"),
        timing=Timing(seconds={}, total_seconds=1.0, images_per_second=1.0),
        environment=Environment(
            python="3.11", torch="2.7", numpy="2.1", platform="linux", device="cpu", threads=1,
            micro_batch=64, form=(),
        ),
    )  # fmt: skip
    return RunFiles(Path(folder), report, per_input_of(tallies, 0.95), None)


def rows_of(name: str, metric: Metric, measured: Tally[Evaluate]) -> list[Number]:
    """The rows of a source."""
    if metric is Metric.AR:
        found = [estimate_adversarial(measured, 0.95)]
    else:
        found = estimate_probabilistic(measured, 0.95, metric)
    found.append(estimate_normalised(measured, 0.95, metric))
    if metric is not Metric.NPPR:
        return make_numbers(found, name)
    floor = float(name.partition("floor=")[2] or 0)
    return make_numbers(found, "nppr", floor=floor, tally=name)


def with_rows(run: RunFiles, *rows: Number, **changes: Any) -> RunFiles:
    """The run with more rows and other parts of its report."""
    numbers = (*run.report.numbers, *rows)
    return replace(run, report=run.report.model_copy(update={"numbers": numbers, **changes}))


def lines_of(run: RunFiles) -> PerInput:
    assert run.per_input is not None
    return run.per_input


def written(run: RunFiles) -> Path:
    """Write a run into its folder."""
    write_whole(run.path / "report.json", run.report.to_json())
    write_whole(run.path / "per_input.csv", lines_of(run).to_csv())
    return run.path


def pr(p: np.ndarray[Any, Any], seed: int, draws: int = 16) -> Measured:
    """PR of inputs with these probabilities of a correct answer."""
    return Measured(Metric.PR, np.random.default_rng(seed).binomial(draws, p), draws)
