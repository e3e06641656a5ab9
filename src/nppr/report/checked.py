"""Whether the files of a run hold what a page needs, beyond what their readers check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nppr.errors import RunFolderError
from nppr.report.evidence import FILE, Draws, Evidence, Worst
from nppr.report.per_input import PerInput
from nppr.report.schema import Report
from nppr.report.shares import lines_of, shares_of

__all__ = ["check_evidence", "check_per_input"]

PRINTED = 1e-5
"""To which a rate is printed."""


def check_per_input(per_input: PerInput, report: Report, file: Path) -> None:
    """Raise `RunFolderError` unless the lines are whole and those of this report.

    Every value is in its range, every source has the same inputs, as many as the report says, and the
    means are the numbers of the report.
    """
    for place, fault in _line_faults(per_input, int(report.data["classes"])):
        raise _not_its_lines(file, f"line {place + 2} {fault}")
    number = int(report.data["inputs"]["evaluate"])
    for source in per_input.sources:
        found = len(set(per_input.of(source)["index"].tolist()))
        lines = len(per_input.of(source))
        if (found, lines) != (number, number):
            raise _not_its_lines(
                file, f"{source!r} has {lines} lines of {found} inputs, not {number}"
            )
    shares_of(report, lines_of(per_input, file.parent), file.parent)


def _line_faults(per_input: PerInput, classes: int) -> Iterator[tuple[int, str]]:
    """The place of the first line for each kind of fault, and what is wrong there."""
    allowed = {
        "label": (0, classes - 1),
        "clean_correct": (0, 1),
        "rate": (0, 1),
        "low": (0, 1),
        "high": (0, 1),
        "draws": (1, np.inf),
        "right": (0, per_input["draws"]),
    }
    for column, (low, high) in allowed.items():
        values = per_input[column]
        wrong = ~((values >= low) & (values <= high))
        if bool(wrong.any()):
            place = int(np.argmax(wrong))
            most = high[place] if isinstance(high, np.ndarray) else high
            yield place, f"{column!r} is {values[place]}, not in [{low}, {most}]"
    wrong = ~(np.abs(per_input["rate"] - per_input["right"] / per_input["draws"]) <= PRINTED)
    if bool(wrong.any()):
        yield int(np.argmax(wrong)), "'rate' is not 'right' / 'draws'"


def _not_its_lines(file: Path, fault: str) -> RunFolderError:
    return RunFolderError(
        f"`run` must hold the per_input.csv of its report.json, in {file} {fault}."
        " Repeat the run's command to write it again."
    )


def check_evidence(evidence: Evidence, folder: Path) -> None:
    """Raise `RunFolderError` unless the tensors of every record belong together."""
    for what in (*map(_worst_fault, evidence.worst), *map(_draws_fault, evidence.draws)):
        for fault in what:
            raise RunFolderError(
                f"`run` must hold a readable {FILE}, in {folder / FILE} {fault}."
                " Remove the file to render the page without pictures."
            )


def _worst_fault(worst: Worst) -> Iterator[str]:
    number = len(worst.indices)
    for name in ("labels", "taken_for", "rates", "clean", "delta", "perturbed"):
        if len(getattr(worst, name)) != number:
            yield f"{name!r} of {worst.source!r} has not {number} entries"
    for name in ("clean", "delta", "perturbed"):
        if getattr(worst, name).shape != worst.clean.shape or worst.clean.dim() != 4:
            yield f"{name!r} of {worst.source!r} are no images"
    whole = ("indices", "labels", "taken_for", "clean", "perturbed")
    yield from _kinds_fault(worst, whole, real=("rates", "delta"))


def _draws_fault(draws: Draws) -> Iterator[str]:
    number = len(draws.indices)
    for name in ("labels", "many", "weights"):
        if len(getattr(draws, name)) != number:
            yield f"{name!r} of {draws.source!r} has not {number} entries"
    if draws.many.dim() != 5 or draws.few.dim() != 5:
        yield f"draws of {draws.source!r} are no images"
    yield from _kinds_fault(draws, whole=("indices", "labels"), real=("many", "few", "weights"))
    yield from _kinds_fault(draws, real=("means", "stds", "covariances", "projected"))


def _kinds_fault(
    record: Worst | Draws, whole: Sequence[str] = (), real: Sequence[str] = ()
) -> Iterator[str]:
    """Tensors that are not of whole numbers, or not of real ones."""
    for name in (*whole, *real):
        if getattr(record, name).is_floating_point() != (name in real):
            wanted = "real" if name in real else "whole"
            yield f"{name!r} of {record.source!r} are no {wanted} numbers"
