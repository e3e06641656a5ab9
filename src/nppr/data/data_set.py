"""Data as the library uses it: images by position, in three splits that never share an input."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.core.tally import Evaluate, Fit, IntArray, Select, SplitKind
from nppr.core.task import Task
from nppr.data.layout import Layout
from nppr.errors import DataError, SpecError, require_at_most
from nppr.system.specs import MOST_CLASSES

S = TypeVar("S", bound=SplitKind, covariant=True)

RANGE_TOLERANCE = 1e-6
PROBE_INPUTS = 64


class Images(Protocol):
    """A set of images that is read by position, so it need not fit into memory."""

    def __len__(self) -> int: ...

    def load(self, positions: IntArray) -> Tensor:
        """Return the images at these positions as floats in [0, 1], `(B, C, H, W)`."""

    def digest(self, position: int) -> bytes:
        """Return a hash of the stored image, which finds identical images without decoding."""


@dataclass(frozen=True, eq=False)
class Split(Generic[S]):
    """The inputs of one split: positions in the image set, which key random draws, and labels."""

    kind: type[S]
    images: Images
    indices: IntArray
    labels: IntArray
    targets: Tensor | None = None
    """Targets of all inputs of the set `(N, ...)`, for a task whose targets are not classes."""

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, positions: IntArray) -> tuple[Tensor, Tensor]:
        """Load images `(B, C, H, W)` and labels `(B,)` at these positions of the split."""
        x = self.images.load(self.indices[positions]).float()
        check_range(x, self.kind.name)
        return x.clamp(0.0, 1.0), self.answers(positions)

    def answers(self, positions: IntArray) -> Tensor:
        """Return the labels at these positions `(B,)`, or rows of the `targets` if there are any."""
        return torch.from_numpy((self.labels if self.targets is None else self.indices)[positions])

    def limit(self, inputs: int | None, seed: int, argument: str) -> Split[S]:
        """Take a seeded subset, stratified by class; a smaller subset is contained in a larger one."""
        if inputs is None:
            return self
        if inputs < 1:
            raise SpecError(f"`{argument}` must be a whole number >= 1, got {inputs}.")
        keep = np.sort(stratified_order(self.labels, self.indices, seed)[:inputs])
        return replace(self, indices=self.indices[keep], labels=self.labels[keep])

    def fingerprint(self) -> str:
        """Return a hash of the indices, the labels and all images of the split."""
        digest = hashlib.sha256(self.indices.tobytes() + self.labels.tobytes())
        for index in self.indices.tolist():
            digest.update(self.images.digest(index))
            if self.targets is not None:
                digest.update(self.targets[index].numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Data:
    """A data set with its three disjoint splits.

    `layout` is the shape and range of inputs that are not images in [0, 1]. `task` defines a
    correct answer, if it is not the label. The data were loaded with the arguments `split` and
    `resize`. `slices` has, by column, a value for every image of the evaluated set.
    """

    name: str
    class_names: tuple[str, ...]
    fit: Split[Fit]
    select: Split[Select]
    evaluate: Split[Evaluate]
    split: str | None = None
    resize: int | None = None
    slices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """Conversions made when the data were loaded."""
    layout: Layout | None = None
    task: Task | None = None

    def __post_init__(self) -> None:
        if len(self.class_names) < 2 and self.targets is None:
            raise DataError(f"`data` must have at least 2 classes, got {len(self.class_names)}.")
        for split in self.splits:
            check_labels(split.labels, self.classes, split.kind.name)
        if not len(self.evaluate):
            raise DataError("`data` must have at least one input to evaluate, got none.")

    @property
    def splits(self) -> tuple[Split[Fit], Split[Select], Split[Evaluate]]:
        """The three splits: fit, select and evaluate."""
        return self.fit, self.select, self.evaluate

    @property
    def targets(self) -> Tensor | None:
        """Targets of all inputs `(N, ...)`, for a task whose targets are not classes."""
        return self.evaluate.targets

    @property
    def is_image(self) -> bool:
        """Whether inputs can be shown as images."""
        return self.layout is None or self.layout.kind == "image"

    @property
    def classes(self) -> int:
        """The number of classes; 1 if the targets are not classes."""
        return len(self.class_names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (C, H, W) of an image."""
        return tuple(self.evaluate.batch(np.arange(1))[0].shape[1:])

    def with_splits(self, change: Callable[[Split[Any]], Split[Any]], **others: Any) -> Data:
        """Return the data with every split changed, and with other fields replaced."""
        fit, select, evaluate = map(change, self.splits)
        return replace(self, fit=fit, select=select, evaluate=evaluate, **others)

    def with_classes(self, classes: int) -> Data:
        """Return the data with classes added that the labels do not show, named by their numbers."""
        if classes < self.classes:
            raise DataError(
                f"`classes` must be at least the {self.classes} of {self.name!r}, got {classes}."
            )
        more = numbered_classes(classes)[self.classes :]
        return replace(self, class_names=self.class_names + more)

    def limit(
        self,
        *,
        inputs: int | None = None,
        fit_inputs: int | None = None,
        select_inputs: int | None = None,
        seed: int = 0,
    ) -> Data:
        """Limit the number of inputs per split, before misclassified inputs are set aside."""
        return replace(
            self,
            fit=self.fit.limit(fit_inputs, seed, "fit-inputs"),
            select=self.select.limit(select_inputs, seed, "select-inputs"),
            evaluate=self.evaluate.limit(inputs, seed, "inputs"),
        )


def stratified_order(labels: IntArray, indices: IntArray, seed: int) -> IntArray:
    """Return an order of positions; each prefix has nearly the class shares of the whole.

    Within a class, inputs are ranked by a hash of (seed, index), the same on every machine; the
    input of rank r among n is placed at (r + 1/2) / n.

    >>> labels = np.array([0, 0, 0, 0, 1, 1])
    >>> sorted(labels[stratified_order(labels, np.arange(6), seed=0)[:3]].tolist())
    [0, 0, 1]
    """
    keys = (f"{seed}/{index}".encode() for index in indices)
    hashes = b"".join(hashlib.blake2b(key, digest_size=8).digest() for key in keys)
    scores = np.frombuffer(hashes, dtype="<u8") / 2.0**64
    place = np.empty(len(labels), dtype=np.float64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ranks = np.argsort(np.argsort(scores[members], kind="stable"), kind="stable")
        place[members] = (ranks + 0.5) / len(members)
    return np.lexsort((scores, place)).astype(np.int64)


def overlaps(data: Data) -> dict[tuple[str, str], int]:
    """Count, for each pair of splits, the inputs of the second whose stored bytes are in the first.

    >>> from nppr.data import load_data
    >>> overlaps(load_data("digits"))
    {('fit', 'select'): 0, ('fit', 'evaluate'): 0, ('select', 'evaluate'): 0}
    """
    digests = {
        split.kind.name: [split.images.digest(index) for index in split.indices.tolist()]
        for split in data.splits
    }
    return {
        (first, second): sum(map(set(digests[first]).__contains__, digests[second]))
        for first, second in itertools.combinations(digests, 2)
    }


def short_digests(split: Split[SplitKind]) -> IntArray:
    """Return a number for every image of a split, equal for equal images, `(N,)`.

    Different images share a number with a probability of about 2^-64.
    """
    found = b"".join(split.images.digest(index)[:8] for index in split.indices.tolist())
    return np.frombuffer(found, dtype=np.int64)


def content_hash(content: bytes) -> bytes:
    """Return a hash of 16 bytes; two contents share one with a probability of about 2^-128."""
    return hashlib.blake2b(content, digest_size=16).digest()


def numbered_classes(classes: int) -> tuple[str, ...]:
    """Return names for classes that only have a number."""
    require_at_most("classes", classes, MOST_CLASSES)
    return tuple(map(str, range(classes)))


def check_range(x: Tensor, split: str) -> None:
    """Raise `DataError` unless all pixels `(N, C, H, W)` are finite and in [0, 1] up to rounding."""
    if x.ndim != 4:
        raise DataError(
            f"`images` must have shape (N, C, H, W), got {tuple(x.shape)}. For other inputs state their"
            " range: input_range=(-1, 1)."
        )
    if not len(x):
        return
    low, high = (float(bound) for bound in torch.aminmax(x))  # NaN anywhere makes both NaN
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError(
            f"`images` must be finite, got NaN or infinite pixels in the {split} split."
        )
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        raise DataError(
            f"`images` must lie in [0, 1], got [{low:.4g}, {high:.4g}] in the {split} split."
            " Divide 8-bit images by 255; give the normalisation as mean and std instead. For"
            " inputs that are not images, state the range: --range -2,2."
        )


def check_labels(labels: IntArray, classes: int, split: str) -> None:
    """Raise `DataError` unless all labels are class numbers."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise DataError(
            f"`labels` must lie in 0..{classes - 1}, got {labels.min()}..{labels.max()}"
            f" in the {split} split."
        )
