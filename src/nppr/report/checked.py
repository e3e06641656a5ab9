"""Whether the files of a run hold what a page needs, beyond what their readers check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nppr.errors import RunFolderError
from nppr.report.evidence import FILE, Draws, Evidence, Worst
from nppr.report.per_input import PerInput
from nppr.report.schema import Report

__all__ = ["check_evidence", "check_facts", "check_per_input"]

NUMBER = (int, float)
FACTS: dict[str, type | tuple[type, ...]] = {
    "classifier.name": str,
    "classifier.fingerprint": str,
    "data.name": str,
    "data.classes": int,
    "data.shape": list,
    "data.fingerprint": str,
    "data.inputs.evaluate": int,
    "budget.norm": str,
    "budget.text": str,
    "budget.radius": NUMBER,
    "settings.confidence": NUMBER,
    "settings.draws": int,
    "settings.sources": list,
    "grade.letter": str,
    "grade.reason": str,
    "timing.total_seconds": NUMBER,
    "timing.images_per_second": NUMBER,
    "timing.seconds": dict,
}
"""What stands inside the free parts of a report."""

LEARNED: dict[str, type | tuple[type, ...]] = {
    "source": str,
    "family.dependency": str,
    "family.components": int,
    "family.floor": NUMBER,
    "fit.selected": str,
    "diagnostics.realised_std": NUMBER,
}


def check_facts(report: Report, file: Path) -> None:
    """Raise `RunFolderError` with the name of the first fact that is missing or of another type."""
    for field, kind in FACTS.items():
        top, _, rest = field.partition(".")
        _check(getattr(report, top), rest, kind, field, file)
    for place, made in enumerate(report.distributions):
        for field, kind in LEARNED.items():
            _check(made, field, kind, f"distributions.{place}.{field}", file)
    confidence = report.settings["confidence"]
    if not 0 < confidence < 1:
        raise _wrong("settings.confidence", file, f"a number in (0, 1), got {confidence}")


def _check(content: Any, field: str, kind: Any, named: str, file: Path) -> None:
    for key in field.split("."):
        if not isinstance(content, dict) or key not in content:
            raise _wrong(named, file, "in the file, which it is not")
        content = content[key]
    if not isinstance(content, kind) or isinstance(content, bool):
        names = " or ".join(
            each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,))
        )
        raise _wrong(named, file, f"of type {names}, got {content!r:.80}")


def _wrong(field: str, file: Path, expected: str) -> RunFolderError:
    return RunFolderError(
        f"`report` field {field!r} in {file} must be {expected}."
        " Repeat the run's command to write the file again."
    )


def check_per_input(per_input: PerInput, report: Report, file: Path) -> None:
    """Raise `RunFolderError` with the first line that cannot be of this run."""
    classes = int(report.data["classes"])
    allowed = {
        "label": (0, classes - 1),
        "clean_correct": (0, 1),
        "rate": (0, 1),
        "low": (0, 1),
        "high": (0, 1),
    }
    for column, (low, high) in allowed.items():
        values = per_input[column]
        wrong = ~((values >= low) & (values <= high))
        if bool(wrong.any()):
            place = int(np.argmax(wrong))
            raise RunFolderError(
                f"`run` must hold the per_input.csv of its report.json, in {file} line {place + 2}"
                f" {column!r} is {values[place]}, not in [{low}, {high}]."
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


def _draws_fault(draws: Draws) -> Iterator[str]:
    number = len(draws.indices)
    for name in ("labels", "many", "weights"):
        if len(getattr(draws, name)) != number:
            yield f"{name!r} of {draws.source!r} has not {number} entries"
    if draws.many.dim() != 5 or draws.few.dim() != 5:
        yield f"draws of {draws.source!r} are no images"
