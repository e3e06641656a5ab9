"""Draws of learned noise, small enough to keep."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nppr.classifiers import FrozenForms, frozen
from nppr.collect.job import Job, small
from nppr.collect.mixture import described
from nppr.data.subset import stratified_order
from nppr.distributions import Context
from nppr.distributions.mixture import Given
from nppr.draws import DRAWS_PER_BLOCK
from nppr.report.evidence import Draws
from nppr.sources import Learned
from nppr.types import IntArray

__all__ = ["draws"]

MANY_INPUTS = 128
MANY_DRAWS = 8
FEW_INPUTS = 4
FEW_DRAWS = 128
SIDE = 32
MOST_NUMBERS = 2_750_000
"""Numbers in the draws kept of one source, 5.5 MB: larger images are kept of fewer inputs."""


def draws(job: Job, source: Learned, right: IntArray) -> Draws:
    """Draws of one learned source for some inputs, and the mixture it has for them."""
    part = job.data.evaluate
    pixels = small(job.inputs(right[:1])[0], SIDE).numel()
    room = max(1, MOST_NUMBERS // pixels - FEW_INPUTS * FEW_DRAWS) // MANY_DRAWS
    chosen = _spread(part.labels[right], part.indices[right], job.seed, min(MANY_INPUTS, room))
    chosen = right[chosen]
    _, first = np.unique(part.labels[chosen[:FEW_INPUTS]], return_index=True)
    with job.classifier.frozen(quantise=job.quantise) as models, torch.inference_mode():
        many = _drawn(job, source, models, chosen, MANY_DRAWS)
        few = _drawn(job, source, models, chosen[: len(first)], FEW_DRAWS)
        weights = torch.cat(
            [_given(job, source, models, some)[0] for some in job.chunks(chosen, 1)]
        )
        mixture = described(*_given(job, source, models, chosen[:1]))
    return Draws(
        source=source.name,
        indices=torch.from_numpy(part.indices[chosen]),
        labels=torch.from_numpy(part.labels[chosen]),
        many=many,
        few=few,
        weights=weights.cpu(),
        **{name: value.float().cpu() for name, value in mixture.items()},
    )


def _spread(labels: IntArray, indices: IntArray, seed: int, most: int) -> IntArray:
    """Positions of at most so many inputs, stratified by class, those of different classes first."""
    order = stratified_order(labels, indices, seed)
    _, first = np.unique(labels[order], return_index=True)
    ahead = np.sort(first)[: min(FEW_INPUTS, most)]
    rest = np.setdiff1d(np.arange(len(order)), ahead)
    found: IntArray = order[np.concatenate([ahead, rest])[: max(1, most)]]
    return found


def _drawn(
    job: Job, source: Learned, models: FrozenForms, positions: IntArray, draws: int
) -> Tensor:
    """Perturbations as shares of the radius, small, `(n, draws, C, h, w)` float16."""
    rows = []
    for some in job.chunks(positions, min(draws, DRAWS_PER_BLOCK)):
        x, y = job.inputs(some)
        blocks = []
        for start in range(0, draws, DRAWS_PER_BLOCK):
            size = min(DRAWS_PER_BLOCK, draws - start)
            block = job.block(some, start // DRAWS_PER_BLOCK, size, DRAWS_PER_BLOCK)
            delta = source.perturb(models.fast, x, y, block) / source.budget.radius
            blocks.append(small(delta.flatten(0, 1), SIDE).unflatten(0, delta.shape[:2]).half())
        rows.append(torch.cat(blocks, 1).cpu())
    return torch.cat(rows)


def _given(
    job: Job, source: Learned, models: FrozenForms, positions: IntArray
) -> tuple[Tensor, Given]:
    """The weights `(n, K)` before sharpening, and the mixture for these inputs."""
    x, y = job.inputs(positions)
    features = None
    if source.distribution.features and source.feature_model is not None:
        with frozen(source.feature_model) as other:
            features = other.features(x)
    elif source.distribution.features:
        features = models.fast.features(x)
    given = source.distribution.to(x.device).mixture(Context(y, features))
    return given.log_weights.exp().expand(len(x), -1).float(), given
