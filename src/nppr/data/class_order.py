"""Class numbers: fit the numbers in the data to the outputs of the classifier."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nppr.core.tally import IntArray
from nppr.data.data_set import Data
from nppr.errors import DataError, SpecError
from nppr.system.bounded import CLASS_NAMES_LIMIT, OversizeError, read_text
from nppr.system.specs import MOST_CLASSES

ClassOrder = Sequence[str] | Mapping[str, int]
"""The classes in the order of the classifier's outputs, or the output number of each class."""

SHOWN_CLASSES = 5


def sorted_note(names: Sequence[str]) -> str:
    """Return the note about classes that were numbered by their names."""
    return f"classes: words in sorted order, {_numbered(names)}; for another order: class-order"


def _numbered(names: Sequence[str]) -> str:
    shown = [f"{name} = {number}" for number, name in enumerate(names[:SHOWN_CLASSES])]
    return ", ".join([*shown, *(["..."] if len(names) > SHOWN_CLASSES else [])])


def fit_classes(data: Data, outputs: int) -> Data:
    """Fit the data to a classifier with this many outputs, if that is unambiguous.

    Labels may show only some of the classes; labels 1..N for N outputs are numbered from 0.
    """
    if outputs == data.classes or data.task is not None:
        return data
    if data.class_names != tuple(map(str, range(data.classes))):
        raise DataError(
            f"`data` must have the {outputs} classes of the classifier, got {data.classes} that are"
            f" named {', '.join(data.class_names[:SHOWN_CLASSES])}{', ...' * (data.classes > 5)}."
            " State which output is which class: --class-order FILE, a line for each output, or"
            " class_order=[...]."
        )
    lowest = min(int(split.labels.min()) for split in data.splits if len(split))
    if outputs > data.classes:
        note = f"labels: up to {data.classes - 1}, a subset of the classifier's {outputs} classes"
        return replace(data.with_classes(outputs), notes=(*data.notes, note))
    if outputs == data.classes - 1 and lowest == 1:
        numbers = {number: number - 1 for number in range(1, data.classes)}
        note = f"labels: 1..{outputs} taken as the classifier's outputs 0..{outputs - 1}"
        return _renumber(data, numbers, data.class_names[1:], note)
    raise DataError(
        f"`labels` must be outputs of the classifier, 0..{outputs - 1}, got {lowest}.."
        f"{data.classes - 1}. Number the classes from 0 in the order of its outputs, or check the"
        " model and its weights."
    )


def with_class_order(data: Data, order: ClassOrder | str | Path) -> Data:
    """Number each class by the position of its name in `order` or that file, which may name more."""
    given = read_class_order(order) if isinstance(order, str | Path) else order
    names = _ordered(given)
    places = {name: place for place, name in enumerate(names)}
    missing = [name for name in data.class_names if name not in places]
    if missing:
        raise DataError(
            f"`class-order` must name every class of the data, {missing[0]!r} is not among its"
            f" {len(names)}: {', '.join(names[:SHOWN_CLASSES])}{', ...' * (len(names) > 5)}."
        )
    numbers = {number: places[name] for number, name in enumerate(data.class_names)}
    kept = tuple(note for note in data.notes if not note.startswith("classes:"))
    note = f"classes: in the order given, {_numbered(names)}"
    return _renumber(replace(data, notes=kept), numbers, names, note)


def read_class_order(path: str | Path) -> ClassOrder:
    """Read class names from a text file with one line per output, or from JSON: a list or a mapping."""
    try:
        text = read_text(path, CLASS_NAMES_LIMIT)
    except (OSError, ValueError, OversizeError) as error:  # also of a path that no file can have
        oversize = str(error).rstrip(".") if isinstance(error, OversizeError) else "it is not text"
        reason = getattr(error, "strerror", None) or oversize
        raise SpecError(
            f"`class-order` must be a readable text file, got {str(path)!r}: {reason}."
        ) from error
    if not str(path).lower().endswith(".json"):
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"`class-order` must be JSON in {str(path)!r}: {error}.") from error
    if not isinstance(found, list | dict):
        raise SpecError(
            "`class-order` must be a list of names, or an object from name to number, got"
            f" {type(found).__name__} in {str(path)!r}."
        )
    return found


def _by_output(order: Mapping[str, int]) -> list[str]:
    """Return the names by output; an output without a name gets its number."""
    outputs = list(order.values())
    whole = all(type(each) is int and 0 <= each < MOST_CLASSES for each in outputs)
    if not whole or len(set(outputs)) < len(outputs):
        raise SpecError(
            "`class-order` must give every class a different output, a number from 0 on, got"
            f" {outputs[:SHOWN_CLASSES]}."
        )
    names = {output: name for name, output in order.items()}
    return [names.get(output, str(output)) for output in range(max(outputs, default=-1) + 1)]


def _ordered(order: ClassOrder) -> tuple[str, ...]:
    """Return the names by output; raise `SpecError` unless every name occurs once."""
    names = tuple(_by_output(order) if isinstance(order, Mapping) else order)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        twice = next((name for name in names if names.count(name) > 1), None)
        raise SpecError(
            "`class-order` must be different names, got"
            f" {'one that is not text' if twice is None else f'{twice!r} twice'}."
            " Example: airplane, automobile, bird"
        )
    if len(names) < 2:
        raise SpecError(f"`class-order` must name at least 2 classes, got {len(names)}.")
    return names


def _renumber(data: Data, numbers: Mapping[int, int], names: tuple[str, ...], note: str) -> Data:
    """Change the numbers of the classes."""
    table: IntArray = np.array([numbers.get(old, 0) for old in range(data.classes)], dtype=np.int64)
    return data.with_splits(
        lambda each: replace(each, labels=table[each.labels]),
        class_names=names,
        notes=(*data.notes, note),
    )
