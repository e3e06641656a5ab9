"""How several ranks divide the inputs, what they exchange, and what one of them tells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nppr.checkpoint import Blocks
from nppr.distributed import gathered, joined, share, world
from nppr.measure.job import Job, ProgressCallback
from nppr.types import IntArray, Progress

__all__ = ["Teller", "exchange_kept", "own_inputs"]


def own_inputs(job: Job, blocks: Blocks) -> IntArray:
    """The inputs of this rank: as much work as the others have, in the pieces of one process."""
    everything = np.arange(len(job.part))
    pieces = np.split(everything, everything[job.inputs_together :: job.inputs_together])
    left = [int((job.blocks - blocks.finished[piece]).sum()) for piece in pieces]
    own = [pieces[number] for number in share(left)]
    return np.concatenate([everything[:0], *own])


def exchange_kept(job: Job, keep: dict[int, Tensor]) -> None:
    """Give every rank the features that the others saw."""
    if world().size == 1:
        return
    indices = [index for each in gathered(list(keep)) for index in each]
    if indices:
        rows = [torch.stack(list(keep.values()))] if keep else []
        features = joined(rows, job.classifier.device)
        keep.update(zip(indices, features.unbind(), strict=True))


@dataclass(frozen=True)
class Teller:
    """Tells how far the measurement is, from `done` images and `right` answers on.

    Of several ranks one tells, as if all went its way: every image of its own stands for `each`.
    """

    job: Job
    progress: ProgressCallback | None
    done: int
    right: int
    each: float

    @classmethod
    def of(
        cls, job: Job, blocks: Blocks, own: IntArray, progress: ProgressCallback | None
    ) -> Teller:
        left = job.draws - job.draws_done(blocks)
        each = int(left.sum()) / max(1, int(left[own].sum()))
        done = len(left) * job.draws - int(left.sum())
        return cls(job, progress, done, int(blocks.right.sum()), each)

    def __call__(self, blocks: Blocks) -> None:
        if self.progress is None:
            return
        done = int(self.job.draws_done(blocks).sum()) - self.done
        right = int(blocks.right.sum()) - self.right
        self.progress(
            Progress(
                source=self.job.source.name,
                done=self.done + round(done * self.each),
                total=len(self.job.part) * self.job.draws,
                right=self.right + round(right * self.each),
            )
        )
