"""Printing for people: the plan of a run, tables, one line for an error.

Everything but results goes to standard error, so that standard output can be piped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from nppr.errors import mark_controls
from nppr.run.progress import Plan
from nppr.run.progress import err as err

if TYPE_CHECKING:  # this module is loaded at start-up and must stay quick
    from pathlib import Path

    from nppr.report.model import ReportRecord
    from nppr.search.learned_noise import LearnedNoise

out = Console(highlight=False, emoji=False)


def show_plan(plan: Plan) -> None:
    """Print what is about to run and about how long it will take."""
    for each in plan.notes:
        note(each)
    if plan.finished:
        note(f"finished before, in {plan.finished}: it is read; --overwrite computes it again")
        return
    form = f", {' + '.join(plan.form)}" if plan.form else ""
    note(
        f"{plan.inputs:,} inputs to evaluate ({plan.fit_inputs:,} to fit, {plan.select_inputs:,} to"
        f" select), sources {', '.join(plan.sources)}: about"
        f" {duration(plan.seconds)} (micro-batch {plan.micro_batch}{form})"
    )
    if plan.warning:
        note(f"warning: {plan.warning}")


def duration(seconds: float) -> str:
    """Return a time as people write it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def show_report(report: ReportRecord, path: Path) -> None:
    """Print the tables and their notes, sources that failed, and the path of the report."""
    from nppr.report.results_table import notes_of, terminal_tables

    for table in terminal_tables(report):
        out.print(table.to_rich(out.width))
    out.print(notes_of(report), markup=False)
    show_failures(report)
    print_line(str(path))


def show_failures(report: ReportRecord) -> None:
    """Print a line for every source that failed or was skipped."""
    for row in report.numbers:
        if row.error:
            outcome = "skipped" if row.flags else "failed"
            show_error(f"source {row.name!r} {outcome}: {row.error}")


def show_learned(learned: Sequence[LearnedNoise], folder: Path) -> None:
    """Print the noise that a search chose for each floor, and how random it is."""
    for each in learned:
        made, search = each.record, each.record.search
        chosen = "" if search.select_value is None else f"chosen: {search.selected}, "
        print_line(
            f"{made.name}: {chosen}realised std {made.diagnostics.realised_std:.3f} of the radius,"
            f" {search.fit_calls:,} calls to fit, {search.forward_calls:,} to choose"
        )
    print_line(f"Measure with: nppr evaluate --distribution {folder}")


def print_line(text: str) -> None:
    """Print one line of a result on standard output."""
    out.print(mark_controls(text), markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Print one line beside the results, on standard error."""
    err.print(mark_controls(text), markup=False, soft_wrap=True)


def show_error(message: str) -> None:
    """Print one line on standard error."""
    line = "error: " + " ".join(mark_controls(message).split())
    err.print(line, markup=False, soft_wrap=True, style="red")
