"""Callables as models: functions on numpy arrays, and programs that accept one shape of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nppr.errors import ClassifierError


@dataclass(frozen=True)
class ArrayModel:
    """A model `function(images) -> scores or labels` on numpy arrays: a library, a service, a device.

    It receives float32 images `(B, C, H, W)` in [0, 1] and returns scores `(B, classes)`, larger
    for likelier classes, or one label per image, `(B,)` whole numbers from 0 to classes - 1. With
    `batch`, it receives at most that many images at a time. Gradient attacks are skipped, and
    searches for the worst noise use its answers alone. A function whose service is down raises
    `ModelUnavailableError`, which stops the run; `resume` continues it.

    >>> model = ArrayModel(lambda images: (images.mean((1, 2, 3)) > 0.5).astype(int), classes=2)
    >>> model(torch.tensor([0.2, 0.9]).view(2, 1, 1, 1))
    tensor([[1., 0.],
            [0., 1.]])
    """

    function: Callable[[Any], Any] = field(repr=False)
    classes: int
    batch: int | None = None

    def __post_init__(self) -> None:
        if type(self.classes) is not int or self.classes < 2:
            raise ClassifierError(f"`classes` must be a whole number >= 2, got {self.classes!r}.")
        if self.batch is not None and (type(self.batch) is not int or self.batch < 1):
            raise ClassifierError(f"`batch` must be a whole number >= 1, got {self.batch!r}.")

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, x: Tensor) -> Tensor:
        """Return scores `(B, classes)`; a label becomes score 1, and the other classes get 0."""
        images = x.detach().float().cpu().numpy()
        size = self.batch or max(1, len(images))
        parts = [self._scores(images[at : at + size]) for at in range(0, len(images), size)]
        return torch.from_numpy(np.concatenate(parts)).to(x.device)

    def _scores(self, images: Any) -> Any:
        answers = np.asarray(self.function(images))
        if answers.shape == (len(images),):
            return self._one_hot(answers)
        if answers.shape != (len(images), self.classes):
            raise ClassifierError(
                f"`model` must return scores of shape ({len(images)}, {self.classes}) or"
                f" {len(images)} labels, got an array of shape {answers.shape}."
            )
        if answers.dtype.kind not in "fiub":
            raise ClassifierError(f"`model` must return numbers, got an array of {answers.dtype}.")
        return answers.astype(np.float32)

    def _one_hot(self, labels: Any) -> Any:
        whole = labels.dtype.kind in "iub" or (
            labels.dtype.kind == "f" and bool((labels == np.round(labels)).all())
        )
        if not whole or not bool(((labels >= 0) & (labels < self.classes)).all()):
            raise ClassifierError(
                f"`model` must return whole-number labels from 0 to {self.classes - 1}, got"
                f" {labels.ravel()[:3].tolist()}."
            )
        return np.eye(self.classes, dtype=np.float32)[labels.astype(np.int64)]


@dataclass(frozen=True, eq=False)
class FixedInputModel:
    """A callable for images of `shape` (C, H, W) in batches of at most `batch` (None: no limit).

    A batch has at least `fewest` images; this equals `batch` for a model with a fixed batch size.

    >>> twice = FixedInputModel(lambda x: x * len(x), (1,), 2, fewest=2)
    >>> twice(torch.ones(3, 1)).flatten()
    tensor([2., 2., 2.])
    """

    run: Callable[[Tensor], Tensor]
    shape: tuple[int | None, ...]
    batch: int | None
    device: torch.device | None = None
    fewest: int = 1

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits; a batch that is too small is padded with copies of its last input."""
        self._require_shape(x)
        most = len(x) if self.batch is None else self.batch
        if self.fewest <= len(x) <= most:
            return self.run(x)
        return torch.cat([self._filled(batch) for batch in x.split(max(most, 1))])

    def _filled(self, x: Tensor) -> Tensor:
        missing = max(0, self.fewest - len(x))
        return self.run(torch.cat([x, x[-1:].expand(missing, *x.shape[1:])]))[: len(x)]

    def _require_shape(self, x: Tensor) -> None:
        given = tuple(x.shape[1:])
        if len(given) != len(self.shape) or any(
            wanted not in (None, size) for wanted, size in zip(self.shape, given, strict=True)
        ):
            text = ", ".join("any" if size is None else str(size) for size in self.shape)
            raise ClassifierError(
                f"`model` must be given images of shape ({text}), got {given}."
                " Resize the data or export the model again."
            )
