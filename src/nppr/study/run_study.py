"""Run a study: compute the nodes that are missing, then make its tables and write them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nppr.errors import RunFolderError, SpecError, WriteError
from nppr.study.graph import Graph, Node
from nppr.study.node_work import FullCacheError, NodeCache, NodeResult, is_full_disk, run_node
from nppr.study.plan import require_code_allowed
from nppr.study.study_file import Study
from nppr.study.study_output import write_noise_figures, write_study
from nppr.study.study_records import Orders, check_orders, read_records
from nppr.study.table_layout import StudyTable, make_table, require_tables
from nppr.system.manifest import Manifest
from nppr.system.scheduler import Job, JobProgress, run_jobs
from nppr.system.worker_pools import open_pool

MOST_NAMED = 30
"""Missing files that an error names."""


@dataclass(frozen=True)
class EndedStudy:
    """A study that has ended: its tables and orders, its failures, and the number of nodes computed."""

    study: Study
    tables: tuple[StudyTable, ...]
    orders: Orders
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    ran: int
    cached: int
    out: Path


def require_present(graph: Graph) -> None:
    """Raise `SpecError`, with the places to fill, if classifiers or data are not here."""
    if graph.missing:
        shown = "; ".join(graph.missing[:MOST_NAMED])
        rest = len(graph.missing) - MOST_NAMED
        more = f"; and {rest} more" if rest > 0 else ""
        raise SpecError(
            f"`study` must find its classifiers and data, missing:"
            f" {shown}{more}. Change a place in [paths] with --set NAME=PATH; train weights with:"
            " nppr train MODEL --data DATA --out FILE"
        )


def run_study(
    study: Study,
    graph: Graph,
    *,
    cache: str | Path = "runs/cache",
    out: str | Path | None = None,
    workers: int | None = None,
    ray: str | None = None,
    run_code: bool = False,
    figures: Sequence[str] = (),
    progress: Callable[[JobProgress], None] | None = None,
) -> EndedStudy:
    """Compute the nodes that are not cached, then write the tables to `out`.

    By default `out` is runs/studies/NAME. `figures` are formats to draw the learned noise in.
    Nodes run in this process, in `workers` processes on this machine, or on the Ray cluster at the
    address `ray` (`local` starts one).
    """
    require_code_allowed(study, run_code=run_code)
    require_tables(study, graph)
    require_present(graph)
    place = NodeCache(Path(cache).absolute())
    folder = Path(out) if out is not None else Path("runs/studies") / study.name
    _require_writable("cache", place.path)
    _require_writable("out", folder)
    Manifest(folder, "study").require_ours()
    finished, jobs = _find_jobs(graph, place)
    with open_pool(workers, ray) as pool:
        ended = run_jobs(
            jobs,
            pool,
            threads=study.measure.threads,
            finished=finished,
            stop_on=(FullCacheError,),
            progress=progress,
            note_of=lambda result: result.note,
        )
    records = read_records(graph, place, {k: each.finished for k, each in ended.results.items()})
    label = {key: node.label for key, node in graph.nodes.items()}
    failures = [f"{label[key]}: {why}" for key, why in ended.failed.items()]
    failures += [
        f"{label[key]}: skipped, it needs {label[why]}" for key, why in ended.skipped.items()
    ]
    places = [cell.place for cell in graph.cells]
    made = EndedStudy(
        study=study,
        tables=tuple(make_table(entry, places, records) for entry in study.tables),
        orders=check_orders(records),
        failures=tuple(failures),
        notes=tuple(each.note for each in ended.results.values() if each.note),
        ran=len(ended.results) - len(finished),
        cached=len(finished),
        out=folder,
    )
    try:
        write_study(study, made.tables, made.orders, made.failures, folder)
        if figures:
            write_noise_figures(graph, place, ended.results, folder, figures)
    except (OSError, WriteError) as error:
        if not is_full_disk(error):
            raise
        raise RunFolderError(
            f"`out` must have space, the disk of {str(folder)!r} is full. Finished nodes are kept:"
            " make space and run the same command again."
        ) from error
    return made


def _find_jobs(
    graph: Graph, cache: NodeCache
) -> tuple[dict[str, NodeResult], list[Job[NodeResult]]]:
    """Return the finished nodes that tables show, and jobs for the others and what those need.

    A damaged node is a job as well: the process that computes it again holds its lock.
    """
    wanted = {key for cell in graph.cells for key in (cell.measure, cell.fit) if key}
    finished: dict[str, NodeResult] = {}
    missing: list[Node] = []
    for node in reversed(graph.nodes.values()):
        if node.hash in wanted:
            found = cache.look_up(node).finished
            if found is not None:
                finished[node.hash] = NodeResult(found)
            else:
                missing.append(node)
                wanted.update(node.needs)
    is_timed = all(node.seconds is not None for node in missing)
    return finished, [
        Job(
            node.hash,
            partial(run_node, node, cache),
            needs=node.needs,
            label=node.label,
            cost=(is_timed and node.seconds) or node.passes,
        )
        for node in reversed(missing)
    ]


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
