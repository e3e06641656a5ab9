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
from nppr.errors import SpecError

if TYPE_CHECKING:
    from nppr.study.graph import Graph
    from nppr.study.run_study import Ended
    from nppr.study.schedule import StudyProgress

LOCAL = "local"
"""What --ray without an address means."""

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
Device = Annotated[
    str | None,
    typer.Option("--device", help="Such as cpu or cuda:0. Default: the accelerator, if any."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the path of the result.")]
RunCode = Annotated[
    bool,
    typer.Option(
        "--run-code",
        help="Allow the study to run the Python code that it names as models. --plan never runs any.",
    ),
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
    run_code: RunCode = False,
    device: Device = None,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Run a study: many fits and measurements from one file, each computed once, and their tables.

    What is finished is kept in the cache: the same command again continues where it stopped.
    """
    chosen = dict(_setting(text) for text in paths or ())
    if workers is not None and workers < 1:
        raise SpecError(f"`workers` must be a whole number >= 1, got {workers}.")

    from nppr.study.study_file import read_study

    content = read_study(file, chosen)

    from nppr.study.plan import MOST_NODES, require_code_allowed
    from nppr.study.plan import plan as plan_study
    from nppr.study.run_study import require_present, run_study
    from nppr.study.table_layout import require_tables

    if not plan:
        require_code_allowed(content, run_code=run_code)
    most = None if yes else MOST_NODES
    graph = plan_study(content, device=device, most=most, run_code=run_code and not plan)
    if plan:
        require_tables(content, graph)
        _show_plan(graph, len(content.tables), workers or 1)
        require_present(graph)
        return
    with _progress(quiet=quiet) as progress:
        ended = run_study(
            content,
            graph,
            cache=cache,
            out=out,
            workers=workers,
            ray=ray,
            run_code=run_code,
            progress=progress,
        )
    _show(ended, quiet=quiet)
    if ended.failures:
        raise typer.Exit(1)


class StudyCommand(TyperCommand):
    """The command, with a --ray whose address may be left out."""

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
        f"about {console.duration(total / workers)} with {workers} at work"
        if known
        else "time unknown"
    )
    written = "1 table" if tables == 1 else f"{tables} tables"
    console.out.print(
        f"{len(graph.nodes):,} nodes and {written}, {about}, less what is cached",
        markup=False,
    )


def _about(seconds: list[float], nodes: int) -> str:
    if len(seconds) < nodes:
        return "?"
    return console.duration(sum(seconds)) if nodes else ""


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[StudyProgress], None] | None]:
    """A bar over nodes, with the one at work and the time that is left; nothing if quiet.

    Where there is no terminal: a line for every node that ended.
    """
    if quiet:
        yield None
        return
    if not console.err.is_terminal:
        yield _print_line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    note = TextColumn("{task.fields[note]}")
    bars = Progress(
        TextColumn("nodes"), BarColumn(), MofNCompleteColumn(), note, console=console.err
    )
    task = bars.add_task("nodes", total=None, note="")

    def report(state: StudyProgress) -> None:
        bars.start()  # not before, so that an early error stands alone
        if state.note:
            bars.console.print(state.note, markup=False, soft_wrap=True)
        running = f"{state.running[0]}{_left(state)}" if state.running else ""
        bars.update(task, completed=state.done, total=state.total, note=running)

    try:
        yield report
    finally:
        if bars.live.is_started:
            bars.stop()


def _print_line(state: StudyProgress) -> None:
    if state.note:
        console.err.print(state.note, markup=False, soft_wrap=True)
    if state.ended:
        line = f"{state.done}/{state.total} {state.ended}{_left(state)}"
        console.err.print(line, markup=False, soft_wrap=True)


def _left(state: StudyProgress) -> str:
    return "" if state.seconds_left is None else f", {console.duration(state.seconds_left)} left"


def _show(ended: Ended, *, quiet: bool) -> None:
    """The tables, and what failed; notes were printed as they came, unless quiet."""
    if quiet:
        for note in ended.notes:
            console.err.print(note, markup=False, soft_wrap=True)
    else:
        for table in ended.tables:
            shown = table.as_table()
            console.out.print(f"\n{shown.caption}", markup=False, soft_wrap=True)
            console.out.print(shown.to_md(), markup=False, soft_wrap=True, end="")
        console.out.print(f"\n{ended.orders.summary()}", markup=False, soft_wrap=True)
        console.out.print(
            f"{ended.ran:,} nodes computed, {ended.cached:,} from the cache", markup=False
        )
    for failure in ended.failures:
        console.show_error(failure)
    console.out.print(str(ended.out / "study.html"), markup=False, soft_wrap=True)


EXAMPLES = """
  nppr study studies/small/digits_main.toml --plan
      a grid of assessments from one file: what it would run; without --plan it runs
  nppr study studies/small/digits_main.toml --workers 2
      in two processes; the same command continues after an interruption"""
