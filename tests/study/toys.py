"""Studies that take seconds."""

from __future__ import annotations

import copy
import json
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from nppr.core.budget import Budget
from nppr.settings import Measure, NetworkSettings
from nppr.sources import Uniform
from nppr.study.graph import MeasureNode, Node
from nppr.study.plan import plan
from nppr.study.resources import ClassifierSource, DataSource
from nppr.study.run_study import EndedStudy, run_study
from nppr.study.study_file import DataEntry, study_from

TOY: dict[str, Any] = {
    "name": "toy",
    "data": [
        {"name": "digits", "spec": "digits", "inputs": 30, "fit_inputs": 80, "select_inputs": 30}
    ],
    "classifiers": [{"name": "cnn", "model": "digits-cnn"}],
    "fit": {"calls": 2048, "step_inputs": 64},
    "measure": {"draws": 2},
    "grids": [
        {
            "radii": [0.1, 0.2, 0.3],
            "fit_radii": [0.2],
            "dependencies": ["independent", "joint"],
            "components": [2],
            "sources": ["uniform"],
            "seeds": [0, 1],
        }
    ],
    "tables": [
        {
            "name": "main",
            "rows": ["classifier", "source", "dependency"],
            "columns": [{"by": ["radius"]}, {"value": "entropy_ratio"}],
        }
    ],
}


def toy(**changes: Any) -> dict[str, Any]:
    """The toy with other values: `grids__0__seeds=[0]` reaches into it."""
    content = copy.deepcopy(TOY)
    for path, value in changes.items():
        *parts, last = path.split("__")
        place: Any = content
        for part in parts:
            place = place[int(part)] if part.isdigit() else place[part]
        if last.isdigit():
            place[int(last)] = value
        else:
            place[last] = value
    return content


def run_toy(content: dict[str, Any], folder: Path, **options: Any) -> EndedStudy:
    """Run a study of plain values, with its cache and its tables in a folder."""
    spec = study_from(content)
    options = {"cache": folder / "cache", "out": folder / "out", **options}
    return run_study(spec, plan(spec), **options)


def node(seed: int) -> Node:
    """A node that stands for any other."""
    return MeasureNode(
        data=DataSource(DataEntry(name="digits", spec="digits")),
        classifier=ClassifierSource(NetworkSettings()),
        device="cpu",
        label="a node",
        budget=Budget.linf(0.1),
        quantise=False,
        threads=1,
        settings=Measure(seed=seed),
        source=Uniform(Budget.linf(0.1)),
    )


def log_of(cache: Path) -> list[dict[str, Any]]:
    """What was begun and done."""
    path = cache / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def times_done(cache: Path) -> Counter[str]:
    """How often each node was done."""
    return Counter(entry["hash"] for entry in log_of(cache) if entry["event"] == "done")


def texts_of(out: Path) -> dict[str, str]:
    """All files that a study wrote."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(out.iterdir())}


class Killer(threading.Thread):
    """Kills the first process that begins a fit, once."""

    def __init__(self, cache: Path) -> None:
        super().__init__()
        self.cache = cache
        self.killed: int | None = None

    def run(self) -> None:
        end = time.monotonic() + 600
        while self.killed is None and time.monotonic() < end:
            begun = [entry for entry in log_of(self.cache) if entry["label"].startswith("fit")]
            if begun:
                self.killed = begun[0]["process"]
                os.kill(begun[0]["process"], signal.SIGKILL)
            time.sleep(0.002)
