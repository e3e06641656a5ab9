"""Models that take batches of one size, or images of one shape."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nppr.errors import ClassifierError

__all__ = ["require_shape", "run_in_batches"]


def run_in_batches(run: Callable[[Tensor], Tensor], x: Tensor, size: int | None) -> Tensor:
    """`run(x)`, in batches of `size`; the last one is filled up and what was filled in is dropped.

    >>> run_in_batches(lambda batch: batch * len(batch), torch.ones(3, 1), 2).flatten()
    tensor([2., 2., 2.])
    """
    if size is None or len(x) == size:
        return run(x)
    outputs = []
    for batch in x.split(size):
        missing = size - len(batch)
        full = torch.cat([batch, batch[-1:].expand(missing, *batch.shape[1:])])
        outputs.append(run(full)[: len(batch)])
    return torch.cat(outputs)


def require_shape(x: Tensor, shape: tuple[int | None, ...]) -> None:
    """Raise `ClassifierError` unless images have this shape; None stands for any size."""
    fits = len(shape) == x.ndim - 1 and all(
        wanted in (None, size) for wanted, size in zip(shape, x.shape[1:], strict=False)
    )
    if not fits:
        text = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
        raise ClassifierError(
            f"`model` takes images of shape {text}, got {tuple(x.shape[1:])}."
            " Resize the data or export the model again."
        )
