"""What a person sees while a command runs: progress, the plan, the table, one line for an error.

Everything but results goes to standard error, so that standard output can be piped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as ProgressBars

if TYPE_CHECKING:  # this module is loaded at start-up and must stay quick
    from typer.exceptions import TyperException

    from nppr.assess import Plan
    from nppr.classifiers.training import TrainProgress
    from nppr.fit import FitProgress
    from nppr.measurement import ProgressCallback
    from nppr.report.model import DistributionRecord, ReportRecord
    from nppr.types import Progress

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


@contextmanager
def progress_bars(
    *, quiet: bool
) -> Iterator[tuple[ProgressCallback | None, Callable[[FitProgress], None] | None]]:
    """A bar for each source and each stage of a fit, with the share of right answers.

    Nothing if quiet.
    """
    if quiet:
        yield None, None
        return
    tasks: dict[str, TaskID] = {}
    with _bars() as bars:

        def update(state: Progress) -> None:
            if state.source not in tasks:
                bars.start()
                tasks[state.source] = bars.add_task(state.source, total=state.total, note="")
            share = f"{100 * state.right / max(1, state.done):.1f} % right"
            bars.update(tasks[state.source], completed=state.done, total=state.total, note=share)

        def update_fit(state: FitProgress) -> None:
            name = f"fit {state.stage}"
            if name not in tasks or bars.tasks[tasks[name]].completed >= state.steps:
                bars.start()
                tasks[name] = bars.add_task(name, total=state.steps, note="")
            note = f"loss {state.loss:.3f}, {100 * state.pr:.1f} % right"
            bars.update(tasks[name], completed=state.step, note=note)

        yield update, update_fit


@contextmanager
def training_bar(*, quiet: bool) -> Iterator[Callable[[TrainProgress], None] | None]:
    """A bar over the steps of all epochs with loss and accuracy, or nothing if quiet."""
    if quiet:
        yield None
        return
    with _bars() as bars:
        task = bars.add_task("training", total=None, note="")

        def update(state: TrainProgress) -> None:
            bars.start()
            bars.update(
                task,
                description=f"epoch {state.epoch}/{state.epochs}",
                completed=(state.epoch - 1) * state.steps + state.step,
                total=state.epochs * state.steps,
                note=f"loss {state.loss:.3f}, {100 * state.accuracy:.1f} % right",
            )

        yield update


@contextmanager
def _bars() -> Iterator[ProgressBars]:
    """Bars that appear when they are started, so that an early error stands alone."""
    bars = ProgressBars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=err,
    )
    try:
        yield bars
    finally:
        if bars.live.is_started:
            bars.stop()


def show_plan(plan: Plan) -> None:
    """Say what is about to run and about how long it will take."""
    form = f", {' + '.join(plan.form)}" if plan.form else ""
    err.print(
        f"{plan.inputs:,} inputs, sources {', '.join(plan.sources)}: about"
        f" {_duration(plan.seconds)} (micro-batch {plan.micro_batch}{form})",
        markup=False,
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def show_report(report: ReportRecord, path: str) -> None:
    """The table, what its marks mean, what failed, and where the report is."""
    from nppr.report.results_table import notes_of, table_of

    out.print(table_of(report).to_rich(out.width))
    out.print(notes_of(report), markup=False)
    for row in report.results:
        if row.error:
            outcome = "skipped" if row.flags else "failed"
            show_error(f"source {row.name!r} {outcome}: {row.error}")
    out.print(path, markup=False, soft_wrap=True)


def show_fitted(distributions: Sequence[DistributionRecord]) -> None:
    """What a search chose for each floor, and how random it is."""
    for made in distributions:
        search = made.search
        chosen = "" if search.select_value is None else f"chosen: {search.selected}, "
        out.print(
            f"{made.name}: {chosen}realised std {made.diagnostics.realised_std:.3f} of the radius,"
            f" {search.fit_calls:,} calls to fit, {search.forward_calls:,} to choose",
            markup=False,
        )
    out.print("Measure with: nppr evaluate --distribution FOLDER", markup=False)


def show_spectrum(report: ReportRecord) -> None:
    """NPPR against rho as a table."""
    from nppr.report.results_table import spectrum_table

    out.print(spectrum_table(report).to_rich(out.width))


def show_bounds(report: ReportRecord, reference: str) -> None:
    """The lower bounds, for each density ratio."""
    from nppr.report.results_table import bounds_table

    out.print(bounds_table(report).to_rich(out.width))
    out.print(
        f"Robustness under any noise, input-dependent or not, whose density is at most c times that of"
        f" {reference} noise; the bounds of a column hold together,"
        f" {100 * report.settings.confidence:g} % confidence.",
        markup=False,
    )


def show_error(message: str) -> None:
    """One line on standard error."""
    err.print("error: " + " ".join(message.split()), markup=False, soft_wrap=True, style="red")


def usage_message(error: TyperException) -> str:
    """What was wrong with the words of a command line, and where to look."""
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return f"{message} See: nppr --help"
