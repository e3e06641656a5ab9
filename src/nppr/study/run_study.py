"""A study from its file to its tables: run what is missing, then write every table and one page."""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup

from nppr.errors import RunFolderError, SpecError
from nppr.manifest import Manifest
from nppr.records import write_whole
from nppr.report.page.shell import page_shell
from nppr.report.tables import FORMATS, Cell, Column, Table, md_text
from nppr.study.engines import Engine, Inline, RayCluster, Workers
from nppr.study.graph import Graph
from nppr.study.node_cache import NodeCache, is_full_disk
from nppr.study.orders import Orders, check_orders
from nppr.study.plan import require_code_allowed
from nppr.study.schedule import Progressed, StudyProgress, execute
from nppr.study.study_file import Study
from nppr.study.study_records import read_records
from nppr.study.table_layout import StudyTable, make_table, require_tables

ORDERS = "orders"
ENDS = {"md": "md", "csv": "csv", "latex": "tex", "json": "json"}
"""The formats of every table, and the endings of their files."""

LOCAL_CLUSTER = "local"
"""As a Ray address: start a cluster on this machine."""

MOST_NAMED = 30
"""Missing files that an error names."""


@dataclass(frozen=True)
class Ended:
    """A study that has ended: its tables, its orders, and what failed."""

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
            f"`study` must find its classifiers and data, {len(graph.missing)} are missing: put"
            f" {shown}{more}. Other places: --set NAME=PATH for a name in [paths]; weights come from:"
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
    progress: Callable[[StudyProgress], None] | None = None,
) -> Ended:
    """Run what is not cached, then write the tables to `out` (runs/studies/NAME by default).

    `workers` processes on this machine, or with `ray` an address of a cluster (`local` starts one).
    """
    require_code_allowed(study, run_code=run_code)
    require_tables(study, graph)
    require_present(graph)
    if workers is not None and workers < 1:
        raise SpecError(f"`workers` must be a whole number >= 1, got {workers}.")
    place = NodeCache(Path(cache).absolute())
    folder = Path(out) if out is not None else Path("runs/studies") / study.name
    _require_writable("cache", place.path)
    _require_writable("out", folder)
    Manifest(folder, "study").require_ours()
    try:
        state = execute(graph, place, _engine(place, workers, ray), progress)
        return _end(study, graph, place, folder, state)
    except OSError as error:
        if not is_full_disk(error):
            raise
        raise RunFolderError(
            f"`out` must have space, the disk of {str(folder)!r} is full. What is finished is kept:"
            " make space and run the same command again."
        ) from error


def _engine(cache: NodeCache, workers: int | None, ray: str | None) -> Engine:
    path = str(cache.path)
    if ray is not None:
        return RayCluster(path, None if ray == LOCAL_CLUSTER else ray, workers)
    return Inline(path) if workers in (None, 1) else Workers(path, workers or 1)


def _end(study: Study, graph: Graph, cache: NodeCache, out: Path, state: Progressed) -> Ended:
    records = read_records(graph, cache, state)
    places = [cell.place for cell in graph.cells]
    tables = tuple(make_table(entry, places, records) for entry in study.tables)
    orders = check_orders(records, graph)
    failures = _failures(graph, state)
    write_study(out, Written(study, tables, orders, failures, _machine()))
    return Ended(tables, orders, failures, tuple(state.notes), state.ran, state.cached, out)


def _failures(graph: Graph, state: Progressed) -> tuple[str, ...]:
    failed = [f"{graph.nodes[hash_].label}: {why}" for hash_, why in state.failed.items()]
    skipped = [
        f"{graph.nodes[hash_].label}: skipped, it needs {graph.nodes[cause].label}"
        for hash_, cause in state.skipped.items()
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


NOTE = (
    "Ours: mean ± standard deviation over evaluation seeds of the first fit; in brackets the lowest"
    " and highest over fit seeds, where there are several. Learned noise gives an upper bound on the"
    " infimum over its family."
)


@dataclass(frozen=True)
class Written:
    """What a study reports in the end."""

    study: Study
    tables: tuple[StudyTable, ...]
    orders: Orders
    failures: tuple[str, ...]
    machine: dict[str, str | int]


def write_study(out: Path, written: Written) -> None:
    """Write all files; the page and study.json last."""
    exports = {table.entry.name: table.as_table() for table in written.tables}
    if written.orders.pairs:
        exports[ORDERS] = orders_table(written.orders)
    texts = {
        f"{name}.{end}": FORMATS[kind](table)
        for name, table in exports.items()
        for kind, end in ENDS.items()
    }
    texts |= {
        "study.md": _markdown(written, exports),
        "study.html": _page(written, exports),
        "study.json": _json(written),
    }
    Manifest(out, "study").replace(*(out / name for name in texts))
    for name, text in texts.items():
        write_whole(out / name, text)


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
            Cell(pair.wrong, "yes" if pair.wrong else "no", strong=pair.wrong),
        )
        for pair in orders.pairs
    )
    return Table("Nested pairs", columns, rows)


def _where(place: dict[str, str | int | float | None]) -> str:
    shown = [place["classifier"], f"{place['norm']} {place['fit_radius']}", place["upsampler"]]
    more = [f"{axis} {place[axis]}" for axis in ("epochs", "fit_seed") if place[axis]]
    return ", ".join(str(each) for each in [*shown, *more])


def _markdown(written: Written, exports: dict[str, Table]) -> str:
    lines = [f"# {md_text(_title(written.study))}", "", NOTE, ""]
    for table in exports.values():
        lines += [f"**{md_text(table.caption)}**", "", table.to_md()]
    lines += [f"Orders: {written.orders.summary()}.", ""]
    if written.failures:
        lines += ["Failed:", "", *(f"- {md_text(each)}" for each in written.failures), ""]
    lines += [f"Machine: {md_text(_machine_text(written))}.", ""]
    return "\n".join(lines)


def _page(written: Written, exports: dict[str, Table]) -> str:
    title = _title(written.study)
    body = [Markup('<main id="main"><h1>{}</h1><p>{}</p>').format(title, NOTE)]
    body += [
        Markup("<section><h2>{}</h2>{}</section>").format(
            table.caption, table.to_html(table.caption)
        )
        for table in exports.values()
    ]
    body.append(Markup("<h2>Orders</h2><p>{}.</p>").format(written.orders.summary()))
    if written.failures:
        listed = _joined(Markup("<li>{}</li>").format(each) for each in written.failures)
        body.append(Markup("<h2>Failed</h2><ul>{}</ul>").format(listed))
    body.append(Markup("<p>Machine: {}.</p></main>").format(_machine_text(written)))
    return page_shell(title, _joined(body))


def _machine_text(written: Written) -> str:
    return ", ".join(f"{name} {value}" for name, value in written.machine.items())


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def _json(written: Written) -> str:
    content = {
        "name": written.study.name,
        "title": written.study.title,
        "note": NOTE,
        "spec": written.study.model_dump(mode="json", exclude={"paths", "tables"}),
        "tables": [table.as_dict() for table in written.tables],
        "orders": {
            "pairs": [asdict(pair) for pair in written.orders.pairs],
            "wrong": written.orders.wrong,
            "raw_above_0.1_point": written.orders.raw,
            "fitted_apart": written.orders.apart,
            "summary": written.orders.summary(),
        },
        "failures": list(written.failures),
        "machine": written.machine,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _title(study: Study) -> str:
    return study.title or study.name
