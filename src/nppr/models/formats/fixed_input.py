"""Models that accept images of one shape, possibly with a fixed or limited batch size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nppr.errors import ClassifierError


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
