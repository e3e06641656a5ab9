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

from nppr.errors import without_controls

if TYPE_CHECKING:  # this module is loaded at start-up and must stay quick
    from pathlib import Path

    from nppr.assessment.assess import Plan
    from nppr.classifiers.training import TrainProgress
    from nppr.measurement import ProgressCallback
    from nppr.report.model import ReportRecord
    from nppr.search.fitting import FitProgress
    from nppr.search.learned_noise import LearnedNoise
    from nppr.tally import Progress

# Without emoji: `nppr:label:floor=0.5` is a name and holds no picture.
out = Console(highlight=False, emoji=False)
err = Console(stderr=True, highlight=False, emoji=False)


@contextmanager
def progress_bars(
    *, quiet: bool
) -> Iterator[tuple[ProgressCallback | None, Callable[[FitProgress], None] | None]]:
    """A bar for each source and each stage of a search, with the fraction of correct answers.

    Nothing if quiet.
    """
    if quiet:
        yield None, None
        return
    tasks: dict[str, TaskID] = {}
    with bars() as shown:

        def update(state: Progress) -> None:
            if state.source not in tasks:
                shown.start()
                tasks[state.source] = shown.add_task(state.source, total=state.total, note="")
            share = f"{100 * state.correct / max(1, state.done):.1f} % correct"
            shown.update(tasks[state.source], completed=state.done, total=state.total, note=share)

        def update_fit(state: FitProgress) -> None:
            name = f"fit {state.stage}"
            if name not in tasks or shown.tasks[tasks[name]].completed >= state.steps:
                shown.start()
                tasks[name] = shown.add_task(name, total=state.steps, note="")
            note = f"loss {state.loss:.3f}, {100 * state.pr:.1f} % correct"
            shown.update(tasks[name], completed=state.step, note=note)

        yield update, update_fit


@contextmanager
def training_bar(*, quiet: bool) -> Iterator[Callable[[TrainProgress], None] | None]:
    """A bar over the steps of all epochs with loss and accuracy, or nothing if quiet."""
    if quiet:
        yield None
        return
    with bars() as shown:
        task = shown.add_task("training", total=None, note="")

        def update(state: TrainProgress) -> None:
            shown.start()
            shown.update(
                task,
                description=f"epoch {state.epoch}/{state.epochs}",
                completed=(state.epoch - 1) * state.steps + state.step,
                total=state.epochs * state.steps,
                note=f"loss {state.loss:.3f}, {100 * state.accuracy:.1f} % correct",
            )

        yield update


@contextmanager
def bars(*, timed: bool = True) -> Iterator[ProgressBars]:
    """Bars that appear when they are started, so that an early error is shown alone."""
    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(elapsed_when_finished=True),
    ]
    shown = ProgressBars(*(columns if timed else columns[:-1]), console=err)
    try:
        yield shown
    finally:
        if shown.live.is_started:
            shown.stop()


def show_plan(plan: Plan) -> None:
    """State what is about to run and about how long it will take."""
    form = f", {' + '.join(plan.form)}" if plan.form else ""
    note(
        f"{plan.inputs:,} inputs, sources {', '.join(plan.sources)}: about"
        f" {duration(plan.seconds)} (micro-batch {plan.micro_batch}{form})"
    )
    if plan.warning:
        note(f"warning: {plan.warning}")


def duration(seconds: float) -> str:
    """A time as people write it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_report(report: ReportRecord, path: Path) -> None:
    """The table, what its marks mean, what failed, and where the report is."""
    from nppr.report.results_table import notes_of, terminal_tables

    for table in terminal_tables(report):
        out.print(table.to_rich(out.width))
    out.print(notes_of(report), markup=False)
    for row in report.results:
        if row.error:
            outcome = "skipped" if row.flags else "failed"
            show_error(f"source {row.name!r} {outcome}: {row.error}")
    print_line(str(path))


def show_learned(learned: Sequence[LearnedNoise], folder: Path) -> None:
    """What a search chose for each floor, and how random it is."""
    for each in learned:
        made, search = each.record, each.record.search
        chosen = "" if search.select_value is None else f"chosen: {search.selected}, "
        print_line(
            f"{made.name}: {chosen}realised std {made.diagnostics.realised_std:.3f} of the radius,"
            f" {search.fit_calls:,} calls to fit, {search.forward_calls:,} to choose"
        )
    print_line(f"Measure with: nppr evaluate --distribution {folder}")


def print_line(text: str) -> None:
    """One line of a result on standard output."""
    out.print(without_controls(text), markup=False, soft_wrap=True)


def note(text: str) -> None:
    """One line beside the results, on standard error."""
    err.print(without_controls(text), markup=False, soft_wrap=True)


def show_error(message: str) -> None:
    """One line on standard error."""
    line = "error: " + " ".join(without_controls(message).split())
    err.print(line, markup=False, soft_wrap=True, style="red")
