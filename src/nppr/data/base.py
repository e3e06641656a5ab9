"""Data as the library sees it: three parts that never share an input.

Images  -- loads images by position, as floats in [0, 1]
Part    -- some positions of an image set, for one purpose: fit, select or evaluate
Data    -- the three parts and the names of the classes
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.data.subset import stratified_order
from nppr.errors import DataError, SpecError
from nppr.types import Evaluate, Fit, IntArray, Select, Split

__all__ = ["Data", "Images", "Part", "TensorImages", "check_labels", "check_range", "content_hash"]

S = TypeVar("S", bound=Split, covariant=True)

RANGE_TOLERANCE = 1e-6
PROBE_INPUTS = 64


class Images(Protocol):
    """An image set that is read by position, so that it need not fit into memory."""

    def __len__(self) -> int: ...

    def load(self, positions: IntArray) -> Tensor:
        """The images at these positions as floats in [0, 1], `(B, C, H, W)`."""

    def digest(self, position: int) -> bytes:
        """A hash of the image as it is stored, so that identical images are found without decoding."""


@dataclass(frozen=True, eq=False)
class TensorImages:
    """Images that are in memory already, `(N, C, H, W)` floats in [0, 1]."""

    tensor: Tensor

    def __len__(self) -> int:
        return len(self.tensor)

    def load(self, positions: IntArray) -> Tensor:
        return self.tensor[torch.from_numpy(positions)]

    def digest(self, position: int) -> bytes:
        return content_hash(self.tensor[position].detach().cpu().numpy().tobytes())


@dataclass(frozen=True, eq=False)
class Part(Generic[S]):
    """Some inputs of an image set, for one purpose.

    `indices` are positions in the image set and key the random draws of an input; `labels` has one
    label for each of them.
    """

    kind: type[S]
    images: Images
    indices: IntArray
    labels: IntArray

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, positions: IntArray) -> tuple[Tensor, Tensor]:
        """Images `(B, C, H, W)` and labels `(B,)` at these positions of the part."""
        x = self.images.load(self.indices[positions]).float()
        check_range(x, self.kind.name)
        return x.clamp(0.0, 1.0), torch.from_numpy(self.labels[positions])

    def limit(self, inputs: int | None, seed: int, argument: str) -> Part[S]:
        """A seeded subset, stratified by class; a smaller one lies inside a larger one."""
        if inputs is None:
            return self
        if inputs < 1:
            raise SpecError(f"`{argument}` must be a whole number >= 1, got {inputs}.")
        keep = np.sort(stratified_order(self.labels, self.indices, seed)[:inputs])
        return replace(self, indices=self.indices[keep], labels=self.labels[keep])

    def fingerprint(self) -> str:
        """A hash of which inputs these are, of their labels and of all their images."""
        digest = hashlib.sha256()
        digest.update(self.indices.tobytes())
        digest.update(self.labels.tobytes())
        for index in self.indices.tolist():
            digest.update(self.images.digest(index))
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Data:
    """A data set with its three disjoint parts.

    `split` and `resize` are what was asked for when it was loaded.
    """

    name: str
    class_names: tuple[str, ...]
    fit: Part[Fit]
    select: Part[Select]
    evaluate: Part[Evaluate]
    split: str | None = None
    resize: int | None = None

    def __post_init__(self) -> None:
        if len(self.class_names) < 2:
            raise DataError(f"`data` must have at least 2 classes, got {len(self.class_names)}.")
        for part in (self.fit, self.select, self.evaluate):
            check_labels(part.labels, self.classes, part.kind.name)
        if not len(self.evaluate):
            raise DataError("`data` must have at least one input to evaluate, got none.")

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def with_classes(self, classes: int) -> Data:
        """The same data with more classes than its labels show, numbered on."""
        if classes < self.classes:
            raise DataError(
                f"`classes` must be at least the {self.classes} of {self.name!r}, got {classes}."
            )
        more = tuple(str(number) for number in range(self.classes, classes))
        return replace(self, class_names=self.class_names + more)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (C, H, W) of an image."""
        x, _ = self.evaluate.batch(np.arange(1))
        return tuple(x.shape[1:])

    def limit(
        self,
        *,
        inputs: int | None = None,
        fit_inputs: int | None = None,
        select_inputs: int | None = None,
        seed: int = 0,
    ) -> Data:
        """Limit the parts, before misclassified inputs are set aside."""
        return replace(
            self,
            fit=self.fit.limit(fit_inputs, seed, "fit-inputs"),
            select=self.select.limit(select_inputs, seed, "select-inputs"),
            evaluate=self.evaluate.limit(inputs, seed, "inputs"),
        )


def content_hash(content: bytes) -> bytes:
    """16 bytes that two different images share only by a chance of about 2^-128."""
    return hashlib.blake2b(content, digest_size=16).digest()


def check_range(x: Tensor, where: str) -> None:
    """Raise `DataError` unless all pixels are finite and in [0, 1] up to rounding."""
    if x.ndim != 4:
        raise DataError(f"`images` must have shape (N, C, H, W), got {tuple(x.shape)}.")
    if not len(x):
        return
    low, high = (float(bound) for bound in torch.aminmax(x))  # NaN anywhere makes both NaN
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError(f"`images` must be finite, got NaN or Inf in the {where} part.")
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        raise DataError(
            f"`images` must lie in [0, 1], got [{low:.4g}, {high:.4g}] in the {where} part."
            " Divide 8-bit images by 255; give the normalisation as mean and std instead."
        )


def check_labels(labels: IntArray, classes: int, where: str) -> None:
    """Raise `DataError` unless all labels are class numbers."""
    if len(labels) and not (labels.min() >= 0 and labels.max() < classes):
        raise DataError(
            f"`labels` must lie in 0..{classes - 1}, got {labels.min()}..{labels.max()}"
            f" in the {where} part."
        )
