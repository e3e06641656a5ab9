"""Divide a data set's own splits into the three splits of an assessment.

A data set's own train split is divided into fit and select (80 to 20). Its test split is evaluated,
or its validation split if it has no test split. A data set with one split is divided three ways
(50, 20 and 30). Every division is stratified by class and fixed: it does not depend on a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from nppr.core.tally import Evaluate, Fit, IntArray, Select
from nppr.data.class_order import sorted_note
from nppr.data.data_set import Data, Images, Split, check_labels, stratified_order
from nppr.data.image_sets import in_one_frame
from nppr.errors import DataError, unknown
from nppr.system.specs import MOST_CLASSES

TRAIN = ("train", "training")
HELD_OUT = ("test", "testing", "val", "validation", "valid", "dev")
"""Names of a split to evaluate, in order of preference."""

ONLY_SPLIT = "all"
"""Name of the split of data without separate splits."""

THREE_WAY = (0.5, 0.2)
"""Shares of fit and select for data with one split."""

FIT_SHARE = 0.8
SPLIT_SEED = 0


@dataclass(frozen=True, eq=False)
class Labelled:
    """N images and their labels: class numbers `(N,)`, or words.

    `class_names` are given if the stored data name their classes. Otherwise words are numbered in
    sorted order, and numbers must be 0..C-1.
    """

    images: Images
    labels: IntArray | list[str]
    class_names: tuple[str, ...] | None = None


def choose_splits(available: Iterable[str], split: str | None) -> tuple[str, ...]:
    """Choose the splits to read by the rule at the top of this file: two, or one for all three.

    >>> choose_splits(["test", "train"], None)
    ('train', 'test')
    >>> choose_splits(["test", "train"], "train")
    ('train',)
    """
    names = sorted(available)
    if not names:
        raise DataError("`data` must hold at least one image with a label, got none.")
    if split is not None and split not in names:
        raise unknown("split", split, names)
    learn = next((name for name in TRAIN if name in names), None)
    held_out = next((name for name in HELD_OUT if name in names), learn)
    if split is None and learn is None and len(names) > 1:
        raise DataError(
            f"`data` must have a train split or one split only, got {', '.join(names)}."
            f" Name the one to evaluate: --split {held_out or names[0]}."
        )
    evaluate = split or held_out or names[0]
    return (evaluate,) if learn in (None, evaluate) else (learn, evaluate)


def assemble(name: str, splits: Mapping[str, Labelled], resize: int | None = None) -> Data:
    """Make data from one split, divided three ways, or from a train and an evaluation split."""
    for split, labelled in splits.items():
        counts = len(labelled.images), len(labelled.labels)
        if counts[0] != counts[1]:
            raise DataError(
                f"`data` must have a label for every image, got {counts[0]} images and {counts[1]}"
                f" labels in the {split} split."
            )
        if not counts[0]:
            raise DataError(f"`data` must hold images, got none in the {split} split.")
    labels, class_names = _number_labels(splits)
    for split, numbers in labels.items():
        check_labels(numbers, len(class_names), split)
    images = in_one_frame([labelled.images for labelled in splits.values()], resize)
    learn, *held_out = zip(images, labels.values(), strict=True)
    data = divide(name, class_names, learn, held_out[0] if held_out else None)
    notes = []
    if not held_out and next(iter(splits)) in TRAIN:
        notes.append("splits: there is only a train split, and a part of it is evaluated")
    given = any(labelled.class_names for labelled in splits.values())
    found = np.unique(np.concatenate(list(labels.values())))
    if not given and any(isinstance(labelled.labels, list) for labelled in splits.values()):
        notes.append(sorted_note(class_names))
    elif not given and len(found) < len(class_names):
        notes.append(f"labels: {len(found)} different numbers in {found[0]}..{found[-1]}")
    return replace(data, notes=tuple(notes))


def divide(
    name: str,
    class_names: tuple[str, ...],
    learn: tuple[Images, IntArray],
    held_out: tuple[Images, IntArray] | None = None,
    shares: tuple[float, float] = THREE_WAY,
    targets: Tensor | None = None,
) -> Data:
    """Divide images into fit and select; evaluate those held out, or else what `shares` leave."""
    images, labels = learn
    if held_out is None:
        fit, select, evaluate = three_way(labels, shares)
        held_out = learn
    else:
        fit, _, select = three_way(labels, (FIT_SHARE, 0.0))
        evaluate = np.arange(len(held_out[1]))
    return Data(
        name=name,
        class_names=class_names,
        fit=Split(Fit, images, fit, labels[fit], targets),
        select=Split(Select, images, select, labels[select], targets),
        evaluate=Split(Evaluate, held_out[0], evaluate, held_out[1][evaluate], targets),
    )


def all_evaluated(data: Data) -> Data:
    """Evaluate every input, or the whole of the data's own split to evaluate; the others are empty."""
    stored = [getattr(split.images, "images", split.images) for split in data.splits]  # unresized
    parts = [split for split, own in zip(data.splits, stored, strict=True) if own is stored[-1]]
    indices = np.concatenate([split.indices for split in parts])
    order = np.argsort(indices)
    labels = np.concatenate([split.labels for split in parts])
    none = np.empty(0, dtype=np.int64)
    return replace(
        data,
        fit=replace(data.fit, indices=none, labels=none),
        select=replace(data.select, indices=none, labels=none),
        evaluate=replace(data.evaluate, indices=indices[order], labels=labels[order]),
    )


def three_way(labels: IntArray, shares: tuple[float, float]) -> tuple[IntArray, IntArray, IntArray]:
    """Return three disjoint sets of positions, stratified by class; the third takes the rest."""
    order = stratified_order(labels, np.arange(len(labels)), SPLIT_SEED)
    first = round(len(labels) * shares[0])
    second = first + round(len(labels) * shares[1])
    return np.sort(order[:first]), np.sort(order[first:second]), np.sort(order[second:])


def _number_labels(splits: Mapping[str, Labelled]) -> tuple[dict[str, IntArray], tuple[str, ...]]:
    """Return the labels of each split as class numbers, and the names of the classes."""
    given = next((split.class_names for split in splits.values() if split.class_names), None)
    labels = {own: split.labels for own, split in splits.items()}
    numbers = {own: each for own, each in labels.items() if isinstance(each, np.ndarray)}
    words = {own: each for own, each in labels.items() if isinstance(each, list)}
    if not words:
        return numbers, given or _name_numbers(np.concatenate(list(numbers.values())))
    if numbers:
        raise DataError(
            f"`labels` must be numbers in all splits or words in all splits, got numbers in"
            f" {', '.join(numbers)} and words in {', '.join(words)}."
        )
    names = given or tuple(sorted({word for split in words.values() for word in split}))
    order = {name: number for number, name in enumerate(names)}
    return {own: np.array([order[word] for word in split]) for own, split in words.items()}, names


def _name_numbers(labels: IntArray) -> tuple[str, ...]:
    """Return names for the numbers from 0 to the largest, including those that do not occur."""
    if not 0 <= labels.min() <= labels.max() <= MOST_CLASSES:
        raise DataError(
            f"`labels` must be class numbers in 0..{MOST_CLASSES}, got {labels.min()}.."
            f"{labels.max()}. Number the classes from 0, and leave out unlabelled inputs."
        )
    return tuple(map(str, range(int(labels.max()) + 1)))
