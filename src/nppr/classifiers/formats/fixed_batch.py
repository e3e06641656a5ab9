"""Models that take batches of one size only."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["run_in_batches"]


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
