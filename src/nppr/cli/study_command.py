"""`nppr study`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from nppr import console
from nppr.cli.app import Command, ExitCode, command
from nppr.errors import SpecError
from nppr.options import DEVICE_OPTION, QUIET_OPTION, Options, option
from nppr.progress import bars
from nppr.study.study_file import read_study

if TYPE_CHECKING:
    from nppr.study.graph import Graph, Node
    from nppr.study.run_study import Ended
    from nppr.study.schedule import StudyProgress

LOCAL = "local"
"""What --ray without an address means."""


class StudyOptions(Options):
    """Options of `nppr study`."""

    file: Path = option(..., "The study, a TOML file (docs/studies.md).", flag="FILE")
    plan: bool = option(False, "Print nodes, calls and the expected time, and run nothing.")
    workers: int | None = option(None, "Processes on this machine. Default: 1.")
    ray: str | None = option(
        None,
        "Run on the Ray cluster at this address (HOST:PORT or auto; extra ray). Without an address: a"
        " cluster of --workers processes is started on this machine.",
        flag="--ray [ADDRESS]",
    )
    paths: list[str] | None = option(
        None, "Another value for a name in [paths] of the study.", flag="--set NAME=PATH"
    )
    cache: Path = option(Path("runs/cache"), "Folder of finished nodes, shared by studies.")
    out: Path | None = option(None, "Folder of the tables. Default: runs/studies/NAME.")
    run_code: bool = option(
        False,
        "Allow the study to run the Python code that it names as models. --plan never runs any.",
    )
    device: str | None = DEVICE_OPTION
    yes: bool = option(False, "Run a study of more than 10,000 nodes.")
    quiet: bool = QUIET_OPTION


class StudyCommand(Command):
    """The command, with a --ray whose address may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the cluster of a bare --ray, then parse as always."""
        return super().parse_args(ctx, _with_address(args))


@command(
    """
    nppr study studies/small/digits_main.toml --plan
        show what would run; leave --plan out to run it
    nppr study studies/small/digits_main.toml --workers 2
        in two processes; the same command continues after an interruption
    """,
    StudyCommand,
)
def study(options: StudyOptions) -> None:
    """Run a study: many searches and measurements from one file, each computed once, and their tables.

    What is finished is kept in the cache: the same command again continues where it stopped.
    """
    chosen = dict(_path_setting(text) for text in options.paths or ())
    if options.workers is not None and options.workers < 1:
        raise SpecError(f"`workers` must be a whole number >= 1, got {options.workers}.")
    content = read_study(options.file, chosen)

    from nppr.specs import names_code
    from nppr.study.plan import MOST_NODES, plan, require_code_allowed
    from nppr.study.run_study import require_present, run_study
    from nppr.study.table_layout import require_tables

    run_code = options.run_code and not options.plan
    if not options.plan:
        require_code_allowed(content, run_code=run_code)
    most = None if options.yes else MOST_NODES
    graph = plan(content, device=options.device, most=most, run_code=run_code)
    if options.plan:
        require_tables(content, graph)
        _show_plan(graph, len(content.tables), options.workers or 1)
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
            out=options.out,
            workers=options.workers,
            ray=options.ray,
            run_code=run_code,
            progress=progress,
        )
    _show(ended, quiet=options.quiet)
    if ended.failures:
        raise ExitCode(1)


def _with_address(arguments: list[str]) -> list[str]:
    """The arguments, with an address behind a --ray that has none.

    >>> _with_address(["--ray", "study.toml"])
    ['--ray', 'local', 'study.toml']
    """
    found: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        found.append(argument)
        if argument == "--ray" and not (":" in following or following in ("auto", LOCAL)):
            found.append(LOCAL)
    return found


def _path_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise SpecError(f"`set` must be NAME=PATH, got {text!r}. Example: --set cifar10=data/cifar")
    return name, value


def _show_plan(graph: Graph, tables: int, workers: int) -> None:
    """Nodes by kind with their calls, and about how long they take."""
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
    """How long the nodes take, or ? where that of one is unknown."""
    seconds = [node.seconds for node in nodes if node.seconds is not None]
    return console.duration(sum(seconds) / workers) if len(seconds) == len(nodes) else "?"


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[StudyProgress], None] | None]:
    """A bar over nodes, with the one at work and the time that is left; nothing if quiet.

    Where there is no terminal: a line for every node that ended.
    """
    if quiet or not console.err.is_terminal:
        yield None if quiet else _print_progress
        return
    with bars(timed=False) as drawn:
        task = drawn.add_task("nodes", total=None, note="")

        def update(state: StudyProgress) -> None:
            drawn.start()
            if state.note:
                console.note(state.note)
            running = f"{state.running[0]}{_time_left(state)}" if state.running else ""
            drawn.update(task, completed=state.done, total=state.total, note=running)

        yield update


def _print_progress(state: StudyProgress) -> None:
    if state.note:
        console.note(state.note)
    if state.ended:
        console.note(f"{state.done}/{state.total} {state.ended}{_time_left(state)}")


def _time_left(state: StudyProgress) -> str:
    return "" if state.seconds_left is None else f", {console.duration(state.seconds_left)} left"


def _show(ended: Ended, *, quiet: bool) -> None:
    """The tables, and what failed; notes were printed as they came, unless quiet."""
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
