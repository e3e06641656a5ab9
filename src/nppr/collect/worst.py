"""The inputs that fared worst under a source, with a draw of it that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from nppr.budget import Budget, perturbed
from nppr.collect.job import Job, small
from nppr.draws import DRAWS_PER_BLOCK
from nppr.report.evidence import Worst
from nppr.sources import Universal, learned_name
from nppr.sources.universal import UniversalOn
from nppr.types import Evaluate, FrozenModel, Grouping, IntArray, Metric, PerturbationSource, Tally

__all__ = ["shown", "worst"]

INPUTS = 12
SIDE = 96
MOST_COST = 200.0
"""Forward passes a draw of a source may take to be drawn from again."""

MOST_SHARE = 6e4
"""Radii that a pixel of a corruption may move: more do not fit into 16 bits."""


def shown(
    sources: Sequence[PerturbationSource],
    tallies: Mapping[str, Tally[Evaluate]],
    winner: str | None = None,
) -> list[PerturbationSource]:
    """The plain learned noise, the strongest attack and the worst noise; else the worst of others.

    The worst noise is the `winner` of the select part where one is named, else that of these tallies.
    """
    free = [each for each in sources if each.name in tallies and _cheap(each)]

    def lowest(*metrics: Metric) -> list[PerturbationSource]:
        found = [each for each in free if each.metric in metrics]
        plain = [each for each in found if each.name in (learned_name(0), winner)]
        rates = {each.name: float(tallies[each.name].headline_rates.mean()) for each in found}
        return (plain or sorted(found, key=lambda each: rates[each.name]))[:1]

    found = [*lowest(Metric.NPPR), *lowest(Metric.AR), *lowest(Metric.PR)]
    return found or lowest(Metric.CORRUPTION)


def _cheap(source: PerturbationSource) -> bool:
    """Whether it may be drawn from again; a universal perturbation might have to be fitted again."""
    return source.cost <= MOST_COST and not isinstance(source, Universal | UniversalOn)


def worst(
    job: Job,
    source: PerturbationSource,
    tally: Tally[Evaluate],
    right: IntArray,
    budget: Budget,
) -> Worst:
    """The inputs with the lowest share of right draws, each with a draw that fails if one is found."""
    chosen = right[np.argsort(tally.rates[right], kind="stable")[:INPUTS]]
    capacity = min(DRAWS_PER_BLOCK, source.fixed_draws or DRAWS_PER_BLOCK)
    size = min(capacity, tally.draws)
    grouped = isinstance(source, Grouping)
    parts: list[tuple[Tensor, ...]] = []
    with job.classifier.frozen(quantise=job.quantise) as models:
        for some in [chosen] if grouped else job.chunks(chosen, size):
            x, y = job.inputs(some)
            delta = source.perturb(models.fast, x, y, job.block(some, 0, size, capacity)).detach()
            if source.budget is not None:
                source.budget.require(delta, source.name)
            moved = perturbed(x.unsqueeze(1), delta, quantise=job.quantise)
            answers = _answers(job, models.fast, moved)
            rows = torch.arange(len(x), device=x.device)
            first = (answers != y[:, None]).int().argmax(1)  # 0 where no draw fails
            share = (delta[rows, first] / budget.radius).clamp(-MOST_SHARE, MOST_SHARE)
            images = (small(image, SIDE) for image in (x, share, moved[rows, first]))
            parts.append((answers[rows, first], *images))
    taken_for, clean, share, shown = (torch.cat(found).cpu() for found in zip(*parts, strict=True))
    return Worst(
        source=source.name,
        indices=torch.from_numpy(job.data.evaluate.indices[chosen]),
        labels=torch.from_numpy(job.data.evaluate.labels[chosen]),
        taken_for=taken_for,
        rates=torch.from_numpy(tally.rates[chosen]).float(),
        clean=_bytes(clean),
        delta=share.half(),
        perturbed=_bytes(shown),
    )


def _answers(job: Job, model: FrozenModel, images: Tensor) -> Tensor:
    """The classes of images `(B, S, C, H, W)`, `(B, S)`."""
    with torch.inference_mode():
        batches = images.flatten(0, 1).split(job.classifier.micro_batch)
        found = torch.cat([model.logits(batch).argmax(1) for batch in batches])
    return found.view(images.shape[:2])


def _bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] as 8-bit numbers."""
    return images.mul(255).round().to(torch.uint8)
