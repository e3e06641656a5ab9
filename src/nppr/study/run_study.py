"""A study from its file to its tables: run what is missing, then write every table and one page."""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup

from nppr.errors import RunFolderError, SpecError, WriteError, mark_controls
from nppr.report.page.shell import page_shell
from nppr.report.tables import FORMATS, Cell, Column, Table, md_text
from nppr.study.graph import Graph, Node
from nppr.study.node_cache import FullCacheError, NodeCache, is_full_disk
from nppr.study.node_work import NodeResult, run_node
from nppr.study.orders import Orders, check_orders
from nppr.study.plan import require_code_allowed
from nppr.study.study_file import Study
from nppr.study.study_records import read_records
from nppr.study.table_layout import StudyTable, make_table, require_tables
from nppr.system.manifest import Manifest
from nppr.system.records import write_whole
from nppr.system.scheduler import EndedJobs, Job, JobProgress, run_jobs
from nppr.system.worker_pools import open_pool

ENDS = {"md": "md", "csv": "csv", "latex": "tex", "json": "json"}
"""The formats of every table, and the endings of their files."""

MOST_NAMED = 30
"""Missing files that an error names."""

NOTE = (
    "Ours: mean ± standard deviation over evaluation seeds of the first fit; in brackets the lowest"
    " and highest over fit seeds, where there are several; in parentheses the interval over inputs, of"
    " the first seed (95 % unless the study states another confidence). Learned noise and attacks give"
    " upper bounds: ≤ is the upper end of the interval, which may be claimed of the worst noise of the"
    " family, and what was observed under the noise found is in parentheses."
)


@dataclass(frozen=True)
class Ended:
    """A study that has ended: its tables, its orders, and what failed."""

    study: Study
    tables: tuple[StudyTable, ...]
    orders: Orders
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    ran: int
    cached: int
    out: Path


def require_present(graph: Graph) -> None:
    """Raise `SpecError` that states what to put where, if classifiers or data are not here."""
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
    progress: Callable[[JobProgress], None] | None = None,
) -> Ended:
    """Run what is not cached, then write the tables to `out` (runs/studies/NAME by default).

    `workers` processes on this machine, or with `ray` an address of a cluster (`local` starts one).
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
    try:
        with open_pool(workers, ray) as pool:
            ran = run_jobs(
                jobs,
                pool,
                threads=study.measure.threads,
                finished=finished,
                stop_on=(FullCacheError,),
                progress=progress,
                note_of=lambda result: result.note,
            )
        ended = _gather(study, graph, place, ran, len(finished), folder)
        write_study(ended)
    except (OSError, WriteError) as error:
        if isinstance(error, FullCacheError) or not is_full_disk(error):
            raise
        raise RunFolderError(
            f"`out` must have space, the disk of {str(folder)!r} is full. What is finished is kept:"
            " make space and run the same command again."
        ) from error
    return ended


def _find_jobs(
    graph: Graph, cache: NodeCache
) -> tuple[dict[str, NodeResult], list[Job[NodeResult]]]:
    """Return the finished nodes that tables show, and jobs for the others and what those need.

    A damaged node is a job as well: the process that computes it again holds its lock.
    """
    wanted = {hash_ for cell in graph.cells for hash_ in (cell.measure, cell.fit) if hash_}
    finished: dict[str, NodeResult] = {}
    missing: list[Node] = []
    for node in reversed(graph.nodes.values()):
        if node.hash in wanted:
            found = cache.look_up(node).finished
            if found is not None:
                finished[node.hash] = NodeResult(found)
            else:
                missing.append(node)
                wanted |= set(node.needs.values())
    by_time = all(node.seconds is not None for node in missing)
    return finished, [
        Job(
            node.hash,
            partial(run_node, node, cache),
            needs=tuple(node.needs.values()),
            label=node.label,
            cost=node.seconds if by_time and node.seconds is not None else node.passes,
        )
        for node in reversed(missing)
    ]


def _gather(
    study: Study,
    graph: Graph,
    cache: NodeCache,
    ran: EndedJobs[NodeResult],
    cached: int,
    out: Path,
) -> Ended:
    records = read_records(graph, cache, {key: each.finished for key, each in ran.results.items()})
    places = [cell.place for cell in graph.cells]
    label = {node.hash: node.label for node in graph.nodes.values()}
    failures = [f"{label[hash_]}: {why}" for hash_, why in ran.failed.items()]
    failures += [
        f"{label[hash_]}: skipped, it needs {label[cause]}" for hash_, cause in ran.skipped.items()
    ]
    return Ended(
        study=study,
        tables=tuple(make_table(entry, places, records) for entry in study.tables),
        orders=check_orders(records),
        failures=tuple(failures),
        notes=tuple(each.note for each in ran.results.values() if each.note),
        ran=len(ran.results) - cached,
        cached=cached,
        out=out,
    )


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


def write_study(ended: Ended) -> None:
    """Write all files; the page and study.json last."""
    tables = {table.entry.name: table.as_table() for table in ended.tables}
    if ended.orders.pairs:
        tables["orders"] = orders_table(ended.orders)
    texts = {
        f"{name}.{end}": FORMATS[kind](table)
        for name, table in tables.items()
        for kind, end in ENDS.items()
    }
    machine = _machine()
    listed = ", ".join(f"{name} {value}" for name, value in machine.items())
    texts |= {
        "study.md": _markdown(ended, tables, listed),
        "study.html": _page(ended, tables, listed),
        "study.json": _json(ended, machine),
    }
    Manifest(ended.out, "study").replace(*(ended.out / name for name in texts))
    for name, text in texts.items():
        write_whole(ended.out / name, mark_controls(text))


def orders_table(orders: Orders) -> Table:
    """One row for every nested pair."""
    columns = (
        Column("kind", "differ in"),
        Column("where", "where"),
        Column("smaller", "smaller family"),
        Column("larger", "larger family"),
        Column("points", "larger - smaller, points", number=True),
        Column("p_value", "p-value", number=True),
        Column("wrong", "wrong order"),
    )
    rows = tuple(
        (
            Cell.of(pair.kind),
            Cell.of(_where(pair.place)),
            Cell.of(pair.small),
            Cell.of(pair.large),
            Cell(pair.points, f"{pair.points:.2f}"),
            Cell(pair.p_value, f"{pair.p_value:.3g}"),
            Cell(
                pair.wrong,
                "tied" if pair.tied else "yes" if pair.wrong else "no",
                strong=pair.wrong,
            ),
        )
        for pair in orders.pairs
    )
    return Table("Nested pairs", columns, rows)


def _where(place: dict[str, str | int | float | None]) -> str:
    shown = [place["classifier"], f"{place['norm']} {place['fit_radius']}", place["upsampler"]]
    more = [f"{axis} {place[axis]}" for axis in ("epochs", "fit_seed") if place[axis]]
    return ", ".join(str(each) for each in [*shown, *more])


def _markdown(ended: Ended, tables: dict[str, Table], machine: str) -> str:
    lines = [f"# {md_text(ended.study.title or ended.study.name)}", "", NOTE, ""]
    for table in tables.values():
        lines += [f"**{md_text(table.caption)}**", "", table.to_md()]
    lines += [f"Orders: {ended.orders.summary()}.", ""]
    if ended.failures:
        lines += ["Failed:", "", *(f"- {md_text(each)}" for each in ended.failures), ""]
    lines += [f"Machine: {md_text(machine)}.", ""]
    return "\n".join(lines)


def _page(ended: Ended, tables: dict[str, Table], machine: str) -> str:
    title = ended.study.title or ended.study.name
    body = [Markup('<main id="main"><h1>{}</h1><p>{}</p>').format(title, NOTE)]
    body += [
        Markup("<section><h2>{}</h2>{}</section>").format(
            table.caption, table.to_html(table.caption)
        )
        for table in tables.values()
    ]
    body.append(Markup("<h2>Orders</h2><p>{}.</p>").format(ended.orders.summary()))
    if ended.failures:
        body.append(Markup("<h2>Failed</h2><ul>"))
        body += [Markup("<li>{}</li>").format(each) for each in ended.failures]
        body.append(Markup("</ul>"))
    body.append(Markup("<p>Machine: {}.</p></main>").format(machine))
    return page_shell(title, Markup("").join(body))


def _json(ended: Ended, machine: dict[str, str]) -> str:
    orders = ended.orders
    content = {
        "name": ended.study.name,
        "title": ended.study.title,
        "note": NOTE,
        "spec": ended.study.model_dump(mode="json", exclude={"paths", "tables"}),
        "tables": [table.as_dict() for table in ended.tables],
        "orders": {
            "pairs": [asdict(pair) for pair in orders.pairs],
            "in_order": orders.in_order,
            "tied": orders.tied,
            "wrong": orders.wrong,
            "raw_above_0.1_point": orders.raw,
            "fitted_apart": orders.apart,
            "summary": orders.summary(),
        },
        "failures": ended.failures,
        "machine": machine,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _machine() -> dict[str, str]:
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
