"""The level function: how far from failing the perturbed images are, in micro-batches."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from nppr.budget import perturbed
from nppr.classifiers import FrozenClassifier, check_finite, is_out_of_memory
from nppr.rare.latent import Latent
from nppr.sources.losses import margin

__all__ = ["Judge"]

logger = logging.getLogger(__name__)

NUMBERS_AT_ONCE = 2**20
"""Numbers in the perturbed images that are made together, unless a micro-batch has more."""


class Judge:
    """Margins `max_{j != y} h_j - h_y` of points z; an input fails where its margin is >= 0.

    `calls` counts the images judged, `right` those that did not fail. Where memory runs out the
    micro-batch is halved.
    """

    def __init__(self, model: FrozenClassifier, latent: Latent, micro_batch: int) -> None:
        self.model = model
        self.latent = latent
        self.micro_batch = micro_batch
        self.calls = 0
        self.right = 0

    def margins(self, x: Tensor, y: Tensor, z: Tensor, indices: tuple[int, ...]) -> Tensor:
        """Images `(B, C, H, W)`, labels `(B,)`, points `(B, S, size)` -> `(B, S)`, double, on the CPU.

        The perturbed image is `clip(x + push(z))`, as it is everywhere.
        """
        points = z.shape[1]
        images = max(self.micro_batch, NUMBERS_AT_ONCE // x[0].numel())
        inputs = max(1, images // points)
        rows = [
            torch.cat(
                [
                    self._some(x[i : i + inputs], y[i : i + inputs], some, indices[i : i + inputs])
                    for some in z[i : i + inputs].split(images, dim=1)
                ],
                dim=1,
            )
            for i in range(0, len(x), inputs)
        ]
        found = torch.cat(rows)
        self.calls += found.numel()
        self.right += int((found < 0).sum())
        return found

    def _some(self, x: Tensor, y: Tensor, z: Tensor, indices: tuple[int, ...]) -> Tensor:
        delta = self.latent.push(x, y, z, indices)
        moved = perturbed(x.unsqueeze(1), delta).flatten(0, 1)
        logits = self._logits(moved)
        check_finite(logits, self.model.classifier.name)
        margins = margin(logits, y.repeat_interleave(z.shape[1]))
        # Double only once it is on the CPU: some devices have no doubles.
        return margins.cpu().double().view(len(x), z.shape[1])

    def _logits(self, images: Tensor) -> Tensor:
        while True:
            try:
                batches = images.split(self.micro_batch)
                return torch.cat([self.model.logits(batch) for batch in batches])
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or self.micro_batch == 1:
                    raise
            self.micro_batch //= 2
            logger.warning("out of memory: going on with a micro-batch of %d", self.micro_batch)
