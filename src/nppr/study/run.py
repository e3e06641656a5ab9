"""A study from its file to its tables."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from nppr.errors import RunFolderError, SpecError
from nppr.study.cache import Cache, is_full_disk
from nppr.study.engine_local import Inline, Workers
from nppr.study.engine_ray import RayCluster
from nppr.study.graph import Graph
from nppr.study.orders import Orders, orders_of
from nppr.study.records import records_of
from nppr.study.schedule import Engine, Finished, StudyProgress, execute
from nppr.study.spec import StudySpec
from nppr.study.table_checks import require_tables
from nppr.study.tables import StudyTable, made_table

__all__ = ["LOCAL_CLUSTER", "Ended", "require_present", "run_study"]

LOCAL_CLUSTER = "local"
"""As a Ray address: start a cluster on this machine."""

MOST_NAMED = 30
"""Missing files that an error names."""


@dataclass(frozen=True)
class Ended:
    """A study that ended: its tables, its orders, and what failed."""

    tables: tuple[StudyTable, ...]
    orders: Orders
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    ran: int
    cached: int
    out: Path


def require_present(graph: Graph) -> None:
    """Raise `SpecError` that says what to put where, if classifiers or data are not here."""
    if graph.missing:
        shown = "; ".join(graph.missing[:MOST_NAMED])
        rest = len(graph.missing) - MOST_NAMED
        more = f"; and {rest} more" if rest > 0 else ""
        raise SpecError(
            f"`study` must find its classifiers and data, {len(graph.missing)} are missing: put"
            f" {shown}{more}. Other places: --set NAME=PATH for a name in [paths]; weights come from:"
            " nppr train MODEL --data DATA --out FILE"
        )


def run_study(
    spec: StudySpec,
    graph: Graph,
    *,
    cache: str | Path = "runs/cache",
    out: str | Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    progress: Callable[[StudyProgress], None] | None = None,
) -> Ended:
    """Do what is not cached, then write the tables to `out` (runs/studies/NAME by default).

    `workers` processes on this machine, or with `ray` an address of a cluster (`local` starts one).
    """
    require_tables(spec, graph)
    require_present(graph)
    if workers is not None and workers < 1:
        raise SpecError(f"`workers` must be a whole number >= 1, got {workers}.")
    place = Cache(Path(cache).absolute())
    folder = Path(out) if out is not None else Path("runs/studies") / spec.name
    _require_writable("cache", place.path)
    _require_writable("out", folder)
    try:
        finished = execute(graph, place, _engine(place, workers, ray), progress)
        return _end(spec, graph, place, folder, finished)
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise RunFolderError(
            f"`out` must have space, the disk of {str(folder)!r} is full. What is finished is kept:"
            " make space and run the same command again."
        ) from error


def _engine(cache: Cache, workers: int | None, ray: str | None) -> Engine:
    path = str(cache.path)
    if ray is not None:
        return RayCluster(path, None if ray == LOCAL_CLUSTER else ray, workers)
    return Inline(path) if workers in (None, 1) else Workers(path, workers or 1)


def _end(spec: StudySpec, graph: Graph, cache: Cache, out: Path, finished: Finished) -> Ended:
    from nppr.study.write import Written, write_study  # what draws pages is slow to import

    records = records_of(graph, finished)
    places = [cell.place for cell in graph.cells]
    tables = tuple(made_table(entry, places, records) for entry in spec.tables)
    orders = orders_of(records, graph, cache)
    failures = _failures(graph, finished)
    write_study(out, Written(spec, tables, orders, failures, _machine()))
    return Ended(
        tables, orders, failures, tuple(finished.notes), finished.ran, finished.cached, out
    )


def _failures(graph: Graph, finished: Finished) -> tuple[str, ...]:
    failed = [f"{graph.nodes[hash_].label}: {why}" for hash_, why in finished.failed.items()]
    skipped = [
        f"{graph.nodes[hash_].label}: skipped, it needs {graph.nodes[cause].label}"
        for hash_, cause in finished.skipped.items()
    ]
    return (*failed, *skipped)


def _machine() -> dict[str, str | int]:
    return {
        "nppr": version("nppr"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": _processor(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.machine()


def _require_writable(argument: str, path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise RunFolderError(
            f"`{argument}` must be a folder that can be written, got {str(path)!r}:"
            f" {error.strerror or error}."
        ) from error
