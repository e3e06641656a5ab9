"""Which part of a data set is for what.

A data set's own train part is divided into fit and select (80 to 20), its test part is evaluate, or its
validation part where it has no test part. A data set of one part is split three ways (50, 20 and 30).
All splits are stratified by class and fixed: they depend on no seed of an assessment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from nppr.data.base import Data, Images, Part, check_labels
from nppr.data.subset import SPLIT_SEED, THREE_WAY, three_way
from nppr.errors import DataError, unknown
from nppr.types import Evaluate, Fit, IntArray, Select

__all__ = ["HELD_OUT", "TRAIN", "Labelled", "Plan", "assemble", "choose_parts"]

TRAIN = ("train", "training")
HELD_OUT = ("test", "testing", "val", "validation", "valid", "dev")
"""Names of a part to evaluate, the best first."""

FIT_SHARE = 0.8


@dataclass(frozen=True, eq=False)
class Labelled:
    """One part of a data set as its files give it: images and their labels `(N,)`."""

    images: Images
    labels: IntArray


@dataclass(frozen=True)
class Plan:
    """Which of a data set's own parts are read.

    `learn` is divided into fit and select; without one, `evaluate` is split three ways.
    """

    evaluate: str
    learn: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The parts that are read, the train part first."""
        return (self.evaluate,) if self.learn is None else (self.learn, self.evaluate)


def choose_parts(available: Iterable[str], split: str | None) -> Plan:
    """The rule at the top of this file, for a data set with these parts.

    >>> choose_parts(["test", "train"], None)
    Plan(evaluate='test', learn='train')
    >>> choose_parts(["test", "train"], "train")
    Plan(evaluate='train', learn=None)
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
            f"`data` must have a train part or one part only, got {', '.join(names)}."
            f" Name the one to take: --split {held_out or names[0]}."
        )
    evaluate = split or held_out or names[0]
    return Plan(evaluate, None if learn == evaluate else learn)


def assemble(
    name: str,
    plan: Plan,
    parts: Mapping[str, Labelled],
    class_names: tuple[str, ...] | None = None,
) -> Data:
    """The parts that a plan names, as data to fit, to select and to evaluate.

    Without `class_names` the classes are the numbers found, which must be 0..C-1.
    """
    for own in plan.names:
        _check_part(own, parts[own])
    names = class_names or _numbers(np.concatenate([parts[own].labels for own in plan.names]))
    for own in plan.names:
        check_labels(parts[own].labels, len(names), own)
    held = parts[plan.evaluate]
    if plan.learn is None:
        source = held
        fit, select, evaluate = three_way(held.labels, THREE_WAY, SPLIT_SEED)
    else:
        source = parts[plan.learn]
        fit, _, select = three_way(source.labels, (FIT_SHARE, 0.0), SPLIT_SEED)
        evaluate = np.arange(len(held.labels))
    return Data(
        name=name,
        class_names=names,
        fit=Part(Fit, source.images, fit, source.labels[fit]),
        select=Part(Select, source.images, select, source.labels[select]),
        evaluate=Part(Evaluate, held.images, evaluate, held.labels[evaluate]),
    )


def _check_part(name: str, part: Labelled) -> None:
    images, labels = len(part.images), len(part.labels)
    if images != labels:
        raise DataError(
            f"`data` must have a label for every image, got {images} images and {labels} labels"
            f" in the {name} part."
        )
    if not labels:
        raise DataError(f"`data` must hold images, got none in the {name} part.")


def _numbers(labels: IntArray) -> tuple[str, ...]:
    found = np.unique(labels)
    if found[0] != 0 or found[-1] != len(found) - 1:
        raise DataError(
            f"`labels` must be 0..C-1 with no number left out, got {len(found)} different ones"
            f" in {found[0]}..{found[-1]}. Number the classes from 0."
        )
    return tuple(str(label) for label in found)
