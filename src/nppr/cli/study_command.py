"""`nppr study`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from rich import box
from rich.table import Table

from nppr.cli import console
from nppr.cli.app import ExitCode
from nppr.cli.commands import StudyOptions
from nppr.errors import SpecError
from nppr.formats import names_code
from nppr.run.progress import bars
from nppr.study.graph import Graph, Node
from nppr.study.plan import MOST_NODES, plan, require_code_allowed
from nppr.study.run_study import EndedStudy, require_present, run_study
from nppr.study.study_file import read_study
from nppr.study.table_layout import require_tables
from nppr.system.scheduler import JobProgress


def execute_study(options: StudyOptions) -> None:
    """Run `nppr study`."""
    chosen = dict(_path_setting(text) for text in options.paths or ())
    content = read_study(options.file, chosen)

    run_code = options.run_code and not options.plan
    if not options.plan:
        require_code_allowed(content, run_code=run_code)
    most = None if options.yes else MOST_NODES
    graph = plan(content, device=options.run.device, most=most, run_code=run_code)
    if options.plan:
        require_tables(content, graph)
        _show_plan(graph, len(content.tables), options.run.workers or 1)
        code = {entry.model: None for entry in content.classifiers if names_code(entry.model)}
        if code:
            console.print_line(
                f"the study names Python code, which --plan does not run: {', '.join(code)};"
                " read it, then run the study with --run-code"
            )
        require_present(graph)
        return
    with _progress(quiet=options.quiet) as progress:
        ended = run_study(
            content,
            graph,
            cache=options.cache,
            out=options.run.out,
            workers=options.run.workers,
            ray=options.run.ray,
            run_code=run_code,
            figures=options.figures,
            progress=progress,
        )
    _show(ended, quiet=options.quiet)
    if ended.failures:
        raise ExitCode(1)


def _path_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise SpecError(f"`set` must be NAME=PATH, got {text!r}. Example: --set cifar10=data/cifar")
    return name, value


def _show_plan(graph: Graph, tables: int, workers: int) -> None:
    """Print the nodes by kind with their calls, and about how long they take."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("kind")
    for name in ("nodes", "fit calls", "forward passes", "about"):
        shown.add_column(name, justify="right")
    for kind, nodes in graph.by_kind().items():
        shown.add_row(
            kind,
            f"{len(nodes):,}",
            f"{sum(node.calls for node in nodes):,}",
            f"{sum(node.passes for node in nodes):,.0f}",
            _duration(nodes) if nodes else "",
        )
    shown.add_row("table", f"{tables:,}", "0", "0", "")
    console.out.print(shown)
    total = _duration(graph.nodes.values(), workers)
    about = "time unknown" if total == "?" else f"about {total} with {workers} at work"
    written = "1 table" if tables == 1 else f"{tables} tables"
    console.print_line(f"{len(graph.nodes):,} nodes and {written}, {about}, less what is cached")


def _duration(nodes: Collection[Node], workers: int = 1) -> str:
    """Return how long the nodes take, or ? if the time of one is unknown."""
    seconds = [node.seconds for node in nodes if node.seconds is not None]
    return console.duration(sum(seconds) / workers) if len(seconds) == len(nodes) else "?"


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[JobProgress], None] | None]:
    """Show a bar over nodes, with the one at work and the time that is left; nothing if quiet.

    Without a terminal, print a line for every node that ended.
    """
    if quiet or not console.err.is_terminal:
        yield None if quiet else _print_progress
        return
    with bars(timed=False) as drawn:
        task = drawn.add_task("nodes", total=None, note="")

        def update(state: JobProgress) -> None:
            drawn.start()
            if state.note:
                console.note(state.note)
            running = f"{state.running[0]}{_time_left(state)}" if state.running else ""
            drawn.update(task, completed=state.done, total=state.total, note=running)

        yield update


def _print_progress(state: JobProgress) -> None:
    if state.note:
        console.note(state.note)
    if state.ended:
        console.note(f"{state.done}/{state.total} {state.ended}{_time_left(state)}")


def _time_left(state: JobProgress) -> str:
    return "" if state.seconds_left is None else f", {console.duration(state.seconds_left)} left"


def _show(ended: EndedStudy, *, quiet: bool) -> None:
    """Print the tables and the failures; notes were printed as they came, unless quiet."""
    if quiet:
        for note in ended.notes:
            console.note(note)
    else:
        for table in ended.tables:
            shown = table.as_table()
            console.print_line(f"\n{shown.caption}\n{shown.to_md().rstrip()}")
        console.print_line(f"\n{ended.orders.summary()}")
        console.print_line(f"{ended.ran:,} nodes computed, {ended.cached:,} from the cache")
    for failure in ended.failures:
        console.show_error(failure)
    console.print_line(str(ended.out / "study.html"))
