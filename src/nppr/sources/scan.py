"""The worst of many parameters of a transformation for each input: AR where the domain is a small box.

In few dimensions trying parameters all over the box finds what gradients miss: the margin of an input
has many local maxima there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from nppr.core.budget import Budget, perturbed
from nppr.core.losses import margin
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel, Metric
from nppr.core.transformations import spread_points
from nppr.errors import SpecError
from nppr.sources.base import Guidance, Source

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Scan(Source, kind="scan"):
    """`points` parameters spread over the box; an input is finished at its first wrong answer."""

    metric = Metric.AR
    guidance = Guidance.MORE
    default = True
    adds = False
    is_thorough = True
    fixed_draws = 1

    budget: Budget
    points: int = 65

    def __post_init__(self) -> None:
        if self.points < 2:
            raise SpecError(f"`points` must be a whole number >= 2, got {self.points}.")

    @property
    def cost(self) -> float:
        return 1.0 + self.points

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """Return the first parameters that break each input, or else those with the largest margin."""
        shape = self.budget.domain(tuple(x.shape[1:]))
        tried = self.budget.radius * spread_points(self.points, shape[0]).to(x)
        found = x.new_zeros(len(x), *shape)
        largest = x.new_full((len(x),), -torch.inf)
        left = torch.arange(len(x), device=x.device)
        for point in tried:
            delta = point.view(1, *shape).expand(len(left), *shape)
            with torch.no_grad():
                logits = model.logits(perturbed(x[left], delta, self.budget))
            logits, labels = model.to_classes(logits, y[left])
            margins = margin(logits, labels)
            better = margins > largest[left]
            found[left[better]] = point.view(shape)
            largest[left] = torch.maximum(largest[left], margins)
            left = left[logits.argmax(1) == labels]
            if not len(left):
                break
        return found.unsqueeze(1)
