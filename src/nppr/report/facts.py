"""Whether the free parts of a `report.json` hold what a page needs; the schema checks the others.

A path such as `timing.seconds.*` names every entry of a table or list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nppr.errors import RunFolderError
from nppr.noise import Dependency
from nppr.report.schema import Report

__all__ = ["check_facts"]

Kinds = tuple[type, ...]
NUMBER: Kinds = (int, float)
WHOLE: Kinds = (int,)
TEXT: Kinds = (str,)
TABLE: Kinds = (dict,)
LIST: Kinds = (list, tuple)
NOTHING = type(None)

FACTS: Mapping[str, Kinds] = {
    "classifier.name": TEXT,
    "classifier.weights": (str, NOTHING),
    "classifier.fingerprint": TEXT,
    "data.name": TEXT,
    "data.classes": WHOLE,
    "data.shape": LIST,
    "data.fingerprint": TEXT,
    "data.inputs.evaluate": WHOLE,
    "data.inputs.*": WHOLE,
    "budget.norm": TEXT,
    "budget.text": TEXT,
    "budget.radius": NUMBER,
    "settings.confidence": NUMBER,
    "settings.draws": WHOLE,
    "settings.sources": LIST,
    "settings.sources.*": TEXT,
    "grade.letter": TEXT,
    "grade.reason": TEXT,
    "timing.total_seconds": NUMBER,
    "timing.images_per_second": NUMBER,
    "timing.seconds": TABLE,
    "timing.seconds.*": NUMBER,
}
"""What stands inside the free parts of a report."""

OPTIONAL: Mapping[str, Kinds] = {
    "data.class_names": (*LIST, NOTHING),
    "data.class_names.*": TEXT,
    "settings.quantise": (bool,),
    "settings.rare_calls": (int, NOTHING),
    "settings.options": TABLE,
    "settings.options.*": TABLE,
    "settings.fit": (dict, NOTHING),
}
"""What may be missing, but must be of its kind where it is there."""

FAMILY: Mapping[str, Kinds] = {
    "dependency": TEXT,
    "components": WHOLE,
    "covariance": TEXT,
    "upsampler": TEXT,
    "grid": (int, NOTHING),
    "min_std": NUMBER,
    "floor": NUMBER,
}
LEARNED: Mapping[str, Kinds] = {
    "source": TEXT,
    "family.dependency": TEXT,
    "family.components": WHOLE,
    "family.floor": NUMBER,
    "fit": TABLE,
    "fit.selected": TEXT,
    "fit.select_value": (*NUMBER, NOTHING),
    "diagnostics": TABLE,
    "diagnostics.realised_std": NUMBER,
    "diagnostics.*": (*NUMBER, NOTHING),
    "fit_seeds": (dict, NOTHING),
}
LEARNED_OPTIONAL: Mapping[str, Kinds] = {
    "fit.with_references": TABLE,
    "fit.with_references.winner": TEXT,
    "fit.fit_calls": WHOLE,
    "fit.forward_calls": WHOLE,
    "fit.stages": LIST,
    "fit.stages.*": TABLE,
    "fit.settings": TABLE,
}
STAGE: Mapping[str, Kinds] = {
    "stage": TEXT,
    "selected": TEXT,
    "dependency": TEXT,
    "components": WHOLE,
    "floor": NUMBER,
    "fit_calls": WHOLE,
    "loss": LIST,
    "loss.*": NUMBER,
    "running_pr": LIST,
    "running_pr.*": NUMBER,
}
SEEDS: Mapping[str, Kinds] = {"values": LIST, "minimum": NUMBER, "spread": NUMBER}
RARE: Mapping[str, Kinds] = {
    "source": TEXT,
    "looked_at": WHOLE,
    "unbroken": WHOLE,
    "status.found": WHOLE,
    "status.below": WHOLE,
    "status.out of calls": WHOLE,
    "largest": (*NUMBER, NOTHING),
}
PRECISION: Mapping[str, Kinds] = {
    "asked": NUMBER,
    "reached": (bool,),
    "available_inputs": WHOLE,
    "rounds": LIST,
    "rounds.*.0": WHOLE,
    "rounds.*.1": WHOLE,
    "widths": TABLE,
    "widths.*.half_width": NUMBER,
}
QUOTED = ("low", "high", "method", "claim", "direction")
"""What every result with a value has."""


def check_facts(report: Report, file: Path) -> None:
    """Raise `RunFolderError` with the name of the first fact that is missing or of another type."""
    for field, expected in _faults(report):
        raise RunFolderError(
            f"`report` field {field!r} in {file} must be {expected}."
            " Repeat the run's command to write the file again."
        )


def _faults(report: Report) -> Iterator[tuple[str, str]]:
    """Field and what it must be, for everything that is wrong."""
    tops = {name: getattr(report, name) for name in type(report).model_fields}
    yield from _wrong(tops, FACTS, "")
    yield from _wrong(tops, OPTIONAL, "", optional=True)
    confidence = report.settings["confidence"]
    if not 0 < confidence < 1:
        yield "settings.confidence", f"a number in (0, 1), got {confidence}"
    if report.seed < 0:
        yield "seed", f"0 or more, got {report.seed}"
    yield from _families(report)
    for place, made in enumerate(report.distributions):
        at = f"distributions.{place}."
        yield from _wrong(made, LEARNED, at)
        yield from _wrong(made, LEARNED_OPTIONAL, at, optional=True)
        for number, stage in enumerate(made["fit"].get("stages", ())):
            yield from _wrong(stage, STAGE, f"{at}fit.stages.{number}.")
        if made["fit_seeds"]:
            yield from _wrong(made["fit_seeds"], SEEDS, at + "fit_seeds.")
        yield from _known(made["family"]["dependency"], at + "family.dependency")
    for place, entry in enumerate(report.rare):
        yield from _wrong(entry, RARE, f"rare.{place}.")
    if report.precision is not None:
        yield from _wrong(report.precision, PRECISION, "precision.")
    yield from _results(report)


def _families(report: Report) -> Iterator[tuple[str, str]]:
    """The family that was searched: of the run, or of learned noise that it was given."""
    found: list[tuple[str, Any]] = [("settings.fit", report.settings.get("fit"))]
    if not found[0][1]:
        found = [
            (f"distributions.{place}.fit.settings", (made.get("fit") or {}).get("settings"))
            for place, made in enumerate(report.distributions)
        ]
    for at, settings in found:
        if settings or report.distributions:
            yield from _wrong({"in": settings}, {"in.family": TABLE}, "", named=f"{at}.family")
            yield from _wrong(settings["family"], FAMILY, f"{at}.family.")
            yield from _known(settings["family"]["dependency"], f"{at}.family.dependency")


def _known(dependency: str, field: str) -> Iterator[tuple[str, str]]:
    if dependency not in set(Dependency):
        yield field, f"one of {', '.join(Dependency)}, got {dependency!r:.80}"


def _results(report: Report) -> Iterator[tuple[str, str]]:
    if not report.results:
        yield "results", "a list of at least one result, got none"
    tables = {"results": report.results}
    tables |= {f"radii.{i}.results": at.results for i, at in enumerate(report.radii)}
    for name, rows in tables.items():
        for place, row in enumerate(rows):
            for field in QUOTED:
                if row.value is not None and getattr(row, field) is None:
                    yield f"{name}.{place}.{field}", "there where `value` is, got null"


def _wrong(
    content: Any,
    kinds: Mapping[str, Kinds],
    before: str,
    *,
    optional: bool = False,
    named: str = "",
) -> Iterator[tuple[str, str]]:
    for field, kind in kinds.items():
        for found, value in _at(content, field.split("."), ()):
            name = named or before + ".".join(found)
            if value is ...:
                if not optional:
                    yield name, "in the file, which it is not"
            elif not isinstance(value, kind) or (isinstance(value, bool) and bool not in kind):
                names = [each.__name__ for each in kind if each not in (NOTHING, tuple)]
                names += ["null"] if NOTHING in kind else []
                yield name, f"of type {' or '.join(names)}, got {value!r:.80}"


def _at(content: Any, path: list[str], before: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    """Every place that a path names with what stands there, `...` where nothing does."""
    if not path:
        yield before, content
        return
    key, rest = path[0], path[1:]
    table = content if isinstance(content, dict) else {}
    if isinstance(content, (list, tuple)):
        table = {str(place): each for place, each in enumerate(content)}
    if key == "*":
        for name, each in table.items():
            yield from _at(each, rest, (*before, str(name)))
    elif key in table:
        yield from _at(table[key], rest, (*before, key))
    else:
        yield (*before, *path), ...
