"""Measured noise: whole frames of a sensor's noise, drawn with replacement.

A frame larger than the image is cropped at a random place. One that is smaller is repeated, from a
random start. Nothing is clipped to the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel
from nppr.data import Data
from nppr.data.noise_frames import read_noise_frames
from nppr.errors import BudgetError
from nppr.noise.rungs import Dependency
from nppr.noise.structures import has_positions
from nppr.source_names import NOISE_SAMPLES, Option
from nppr.sources.base import Source
from nppr.statistics.frame_statistics import FrameStatistics, describe_frames

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class NoiseSamples(Source):
    """Noise drawn from measured `frames` `(N, C, H, W)`.

    It has a budget if all frames stay inside, and else none, as a corruption.
    """

    kind = NOISE_SAMPLES
    sees = Dependency.INDEPENDENT
    has_budget = False
    transforms = False

    frames: Tensor
    samples: FrameStatistics
    budget: Budget | None = None

    @classmethod
    def from_frames(
        cls, given: Any, data: Data, budget: Budget, *, confidence: float, one_radius: bool = True
    ) -> NoiseSamples:
        """Read frames from a path or an array and describe their noise.

        The noise is the same at all radii, so with several of them it has no budget.
        """
        if budget.transform is not None or not has_positions(data.shape):
            what = "a transformation" if budget.transform is not None else "a table"
            raise BudgetError(
                f"`noise-samples` must be left out with {what}: it is added noise of an image or a"
                " signal."
            )
        read = read_noise_frames(given, data)
        found = describe_frames(
            read.noise,
            mean=read.mean,
            at_ends=read.at_ends,
            sha256=read.sha256,
            confidence=confidence,
        )
        frames = torch.from_numpy(read.noise)
        same = tuple(frames.shape[1:]) == data.shape
        largest = frames if same else frames.abs().max().expand(data.shape)
        inside = one_radius and bool(budget.contains(largest).all())
        return cls(frames, found, budget if inside else None)

    def options(self, shape: Sequence[int]) -> dict[str, Option]:
        return {"frames": self.samples.frames, "sha256": self.samples.sha256}

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Perturbations `(B, S, C, H, W)`."""
        frames = self.frames.to(x)
        chosen, *starts = draws.uniform(self.kind, (3,)).double().unbind(-1)
        frame = (chosen * len(frames)).long()
        rows, columns = (
            _places(start, have, need)
            for start, have, need in zip(starts, frames.shape[2:], x.shape[2:], strict=True)
        )
        taken = frames.movedim(1, -1)[
            frame[..., None, None], rows[..., :, None], columns[..., None, :]
        ]
        return taken.movedim(-1, 2)


def _places(start: Tensor, have: int, need: int) -> Tensor:
    """Return the rows or columns that are taken of a frame, `(B, S) -> (B, S, need)`."""
    starts = have - need + 1 if have >= need else have
    first = (start * starts).long()
    return (first[..., None] + torch.arange(need, device=start.device)) % have
