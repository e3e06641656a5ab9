"""Models that take images of one shape, possibly in batches of one size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nppr.errors import ClassifierError


@dataclass(frozen=True, eq=False)
class FixedInputModel:
    """A callable for images of `shape` (C, H, W) in batches of `batch`; None stands for any size.

    >>> twice = FixedInputModel(lambda x: x * len(x), (1,), 2)
    >>> twice(torch.ones(3, 1)).flatten()
    tensor([2., 2., 2.])
    """

    run: Callable[[Tensor], Tensor]
    shape: tuple[int | None, ...]
    batch: int | None
    device: torch.device | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The logits; a last batch is filled up, and the answers to what was filled in are dropped."""
        self._require_shape(x)
        if self.batch is None or len(x) == self.batch:
            return self.run(x)
        outputs = []
        for batch in x.split(self.batch):
            missing = self.batch - len(batch)
            full = torch.cat([batch, batch[-1:].expand(missing, *batch.shape[1:])])
            outputs.append(self.run(full)[: len(batch)])
        return torch.cat(outputs)

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
