"""Whether the answers to perturbed images are right."""

from __future__ import annotations

import torch
from torch import Tensor

from nppr.budget import perturbed
from nppr.classifiers import AGREEMENT, FrozenForms, check_finite
from nppr.draws import DrawBlock
from nppr.errors import DataError
from nppr.measure.job import Job
from nppr.types import FloatArray, IntArray, Observing, PerturbationSource

__all__ = ["judge"]


def judge(
    job: Job, models: FrozenForms, x: Tensor, y: Tensor, draws: DrawBlock
) -> tuple[IntArray, FloatArray | None]:
    """How many of the draws of each input are right, `(B,)`, and what the source observed."""
    delta = job.source.perturb(models.fast, x, y, draws)
    _check_perturbations(job.source, delta, (len(x), draws.size, *x.shape[1:]))
    moved = perturbed(x.unsqueeze(1), delta, quantise=job.quantise).flatten(0, 1)
    with torch.inference_mode():
        wanted = job.keep is not None and draws.size == 1
        batches = moved.split(job.classifier.micro_batch)
        judged = [models.fast.features_and_logits(batch, wanted=wanted) for batch in batches]
        if job.keep is not None and wanted:
            features = torch.cat([seen for seen, _ in judged])
            job.keep.update(zip(draws.indices, features.unbind(), strict=True))
        logits = torch.cat([found for _, found in judged])
        right = _right(models, logits, moved, y.repeat_interleave(draws.size))
        sums = None
        if isinstance(job.source, Observing):
            sums = job.source.observe(logits.view(len(x), draws.size, -1), y).double().cpu().numpy()
    counts: IntArray = right.view(len(x), draws.size).sum(1).cpu().numpy()
    return counts, sums


def _right(models: FrozenForms, logits: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Which images are classified right; close calls go to the model as given, one by one.

    "One by one" is a batch of two equal images, which every model takes.
    """
    check_finite(logits, models.fast.classifier.name)
    largest, answers = logits.topk(2, dim=1)
    close = largest[:, 0] - largest[:, 1] <= AGREEMENT * logits.abs().amax(1)
    right = answers[:, 0] == y
    for row in close.nonzero().flatten().tolist():
        twice = x[row : row + 1].expand(2, *x.shape[1:])
        right[row] = models.reference.logits(twice).argmax(1)[0] == y[row]
    return right


def _check_perturbations(source: PerturbationSource, delta: Tensor, shape: tuple[int, ...]) -> None:
    if delta.shape != shape:
        raise DataError(
            f"source {source.name!r} must return perturbations of shape {shape},"
            f" got {tuple(delta.shape)}."
        )
    if source.budget is not None:
        source.budget.require(delta, source.name)
    elif not bool(torch.isfinite(delta).all()):
        raise DataError(f"source {source.name!r} must return finite numbers, got NaN or Inf.")
