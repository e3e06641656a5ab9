"""Runs whose numbers are known, without a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nppr.report.exports import write_whole
from nppr.report.folder import RunFiles
from nppr.report.per_input import PerInput, per_input_of
from nppr.report.schema import SCHEMA_VERSION, Report, result
from nppr.statistics.estimates import accuracy, adversarial, normalised, probabilistic
from nppr.tally import BoolArray, Evaluate, IntArray, Metric, Tally


@dataclass(frozen=True, eq=False)
class Measured:
    """Right draws of every input under one source."""

    metric: Metric
    correct: IntArray
    draws: int


def tally(right: IntArray, draws: int, correct: BoolArray) -> Tally[Evaluate]:
    number = len(right)
    return Tally(
        kind=Evaluate, indices=np.arange(number), labels=np.zeros(number, np.int64),
        clean_correct=correct, correct=right, draws=draws, calls=number * draws, micro_batch=64,
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
    **settings: Any,
) -> RunFiles:
    """A finished run of these measurements, which lies nowhere."""
    tallies = {name: tally(each.correct, each.draws, correct) for name, each in sources.items()}
    clean = tally(correct.astype(np.int64), 1, np.ones(len(correct), np.bool_))
    rows = [result("clean", accuracy(clean, 0.95))]
    for name, each in sources.items():
        made = tallies[name]
        if each.metric is Metric.AR:
            found = [adversarial(made, 0.95)]
        else:
            found = probabilistic(made, 0.95, each.metric)
        rows += [result(name, row) for row in [*found, normalised(made, 0.95, each.metric)]]
    inputs = {"fit": 0, "select": 0, "evaluate": len(correct)}
    report = Report(
        schema_version=SCHEMA_VERSION,
        nppr_version="0.1.0",
        classifier={"name": classifier, "weights": None, "fingerprint": classifier},
        data={
            "name": "made",
            "classes": 2,
            "shape": [1, 8, 8],
            "inputs": inputs,
            "fingerprint": fingerprint,
        },
        budget={"norm": "linf", "radius": float(eps), "text": eps},
        seed=seed,
        settings={
            "sources": list(sources),
            "draws": 16,
            "inputs": None,
            "confidence": 0.95,
            **settings,
        },
        results=tuple(rows),
        distributions=(),
        flags=(),
        grade={"letter": "A", "reason": "no flag"},
        timing={"seconds": {}, "total_seconds": 1.0, "images_per_second": 1.0},
        environment={"device": "any"},
    )
    return RunFiles(Path(folder), report, per_input_of(tallies, 0.95), None)


def lines_of(run: RunFiles) -> PerInput:
    assert run.per_input is not None
    return run.per_input


def written(run: RunFiles) -> Path:
    """Write a run into its folder."""
    path = Path(run.path)
    write_whole(path / "report.json", run.report.to_json())
    write_whole(path / "per_input.csv", lines_of(run).to_csv())
    return path


def pr(p: np.ndarray[Any, Any], seed: int, draws: int = 16) -> Measured:
    """PR of inputs with these probabilities of a right answer."""
    return Measured(Metric.PR, np.random.default_rng(seed).binomial(draws, p), draws)
