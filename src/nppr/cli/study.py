"""`nppr study`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from typer.core import TyperCommand

from nppr import console
from nppr.cli import options
from nppr.errors import SpecError

if TYPE_CHECKING:
    from nppr.study.graph import Graph
    from nppr.study.run import Ended
    from nppr.study.schedule import StudyProgress

__all__ = ["StudyCommand", "study"]

LOCAL = "local"
"""What a bare --ray stands for."""

File = Annotated[Path, typer.Argument(help="The study, a TOML file: docs/studies.md.")]
OnlyPlan = Annotated[
    bool, typer.Option("--plan", help="Print nodes, calls and about how long, and run nothing.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Processes on this machine. Default: one.")
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Run on the Ray cluster at this address (HOST:PORT or auto; extra ray). Without an"
        " address: a cluster of --workers processes is started on this machine.",
    ),
]
SetPath = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=PATH: another value for a name in [paths] of the study."),
]
CachePath = Annotated[
    Path, typer.Option("--cache", help="Folder of finished nodes, shared by studies.")
]
OutPath = Annotated[
    Path | None, typer.Option("--out", help="Folder of the tables. Default: runs/studies/NAME.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Run a study of more than 10,000 nodes.")]


def study(
    file: File,
    plan: OnlyPlan = False,
    workers: Workers = None,
    ray: Ray = None,
    paths: SetPath = None,
    cache: CachePath = Path("runs/cache"),
    out: OutPath = None,
    device: options.Device = None,
    yes: Yes = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a study: many fits and measurements from one file, each computed once, and their tables.

    What is finished is kept in the cache: a rerun of the same command goes on where it was.
    """
    chosen = dict(_setting(text) for text in paths or ())
    if workers is not None and workers < 1:
        raise SpecError(f"`workers` must be a whole number >= 1, got {workers}.")

    from nppr.study.plan import MOST_NODES
    from nppr.study.plan import plan as planned
    from nppr.study.read import read_study
    from nppr.study.run import require_present, run_study
    from nppr.study.table_checks import require_tables

    spec = read_study(file, chosen)
    graph = planned(spec, device=device, most=None if yes else MOST_NODES)
    if plan:
        require_tables(spec, graph)
        _show_plan(graph, len(spec.tables), workers or 1)
        require_present(graph)
        return
    with _progress(quiet=quiet) as progress:
        ended = run_study(
            spec,
            graph,
            cache=cache,
            out=out,
            workers=workers,
            ray=ray,
            progress=progress,
        )
    _show(ended, quiet=quiet)
    if ended.failures:
        raise typer.Exit(1)


class StudyCommand(TyperCommand):
    """The command, with a --ray that may stand alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the cluster of a bare --ray, then parse as always."""
        return super().parse_args(ctx, _with_address(args))


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


def _setting(text: str) -> tuple[str, str]:
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
    known = True
    total = 0.0
    for kind, nodes in graph.by_kind().items():
        seconds = [node.seconds for node in nodes if node.seconds is not None]
        known = known and len(seconds) == len(nodes)
        total += sum(seconds)
        shown.add_row(
            kind,
            f"{len(nodes):,}",
            f"{sum(node.calls for node in nodes):,}",
            f"{sum(node.passes for node in nodes):,.0f}",
            _about(seconds, len(nodes)),
        )
    shown.add_row("table", f"{tables:,}", "0", "0", "")
    console.out.print(shown)
    about = (
        f"about {_duration(total / workers)} with {workers} at work" if known else "time unknown"
    )
    written = "1 table" if tables == 1 else f"{tables} tables"
    console.out.print(
        f"{len(graph.nodes):,} nodes and {written}, {about}, less what is cached",
        markup=False,
    )


def _about(seconds: list[float], nodes: int) -> str:
    if len(seconds) < nodes:
        return "?"
    return _duration(sum(seconds)) if nodes else ""


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[StudyProgress], None] | None]:
    """A bar over nodes, with the one at work and the time that is left; nothing if quiet.

    Where there is no terminal: a line for every node that ended.
    """
    if quiet:
        yield None
        return
    if not console.err.is_terminal:
        yield _tell_line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    note = TextColumn("{task.fields[note]}")
    bars = Progress(
        TextColumn("nodes"), BarColumn(), MofNCompleteColumn(), note, console=console.err
    )
    task = bars.add_task("nodes", total=None, note="")

    def tell(state: StudyProgress) -> None:
        bars.start()  # not before, so that an early error stands alone
        if state.note:
            bars.console.print(state.note, markup=False, soft_wrap=True)
        running = f"{state.running[0]}{_left(state)}" if state.running else ""
        bars.update(task, completed=state.done, total=state.total, note=running)

    try:
        yield tell
    finally:
        if bars.live.is_started:
            bars.stop()


def _tell_line(state: StudyProgress) -> None:
    if state.note:
        console.err.print(state.note, markup=False, soft_wrap=True)
    if state.ended:
        line = f"{state.done}/{state.total} {state.ended}{_left(state)}"
        console.err.print(line, markup=False, soft_wrap=True)


def _left(state: StudyProgress) -> str:
    return "" if state.seconds_left is None else f", {_duration(state.seconds_left)} left"


def _show(ended: Ended, *, quiet: bool) -> None:
    """The tables, and what failed; notes were told when they came, if anything was."""
    if quiet:
        for note in ended.notes:
            console.err.print(note, markup=False, soft_wrap=True)
    else:
        for table in ended.tables:
            exported = table.exported()
            console.out.print(f"\n{exported.caption}", markup=False, soft_wrap=True)
            console.out.print(exported.to_md(), markup=False, soft_wrap=True, end="")
        console.out.print(f"\n{ended.orders.summary()}", markup=False, soft_wrap=True)
        console.out.print(
            f"{ended.ran:,} nodes computed, {ended.cached:,} from the cache", markup=False
        )
    for failure in ended.failures:
        console.show_error(failure)
    console.out.print(str(ended.out / "study.html"), markup=False, soft_wrap=True)
