"""Intermediate stress (Rice et al., 2021): between the mean loss under noise and the worst.

With loss l and Uniform noise delta, `E_x (E_delta[l(x + delta)^q])^(1/q)`: q = 1 is the mean, and a
growing q weighs the worst draws more and more. An input's moments are sums over its draws of
`l^q = exp(q log l)`, added up as logarithms, so that q = 1000 does not overflow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from nppr.core.budget import Budget
from nppr.core.losses import log_loss
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Estimate, Evaluate, FloatArray, FrozenModel, Metric, Tally
from nppr.sources.base import Guidance, Source, parse_number_list
from nppr.sources.fixed import Uniform

if TYPE_CHECKING:
    from torch import Tensor


ORDERS = "1+10+100+1000"
LARGEST_ORDER = 1e6


@dataclass(frozen=True)
class Stress(Source, kind="stress"):
    """Uniform noise whose losses are read instead of its answers; `q` lists the orders with `+`."""

    metric = Metric.STRESS
    guidance = Guidance.MORE

    budget: Budget
    q: str = ORDERS

    def __post_init__(self) -> None:
        _ = self.orders

    @property
    def row_source(self) -> str:
        return self.kind

    @property
    def orders(self) -> tuple[float, ...]:
        """The values of q."""
        return parse_number_list(
            "`q` of stress", self.q, each="order", most=LARGEST_ORDER, example=f"q={ORDERS}"
        )

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        """The draws of the source `uniform`, `(B, S, C, H, W)`."""
        return Uniform(self.budget).perturb(model, x, y, draws)

    def observe(self, logits: Tensor, y: Tensor) -> Tensor:
        """Log of the sum over draws of l^q for each q: `(B, S, classes), (B,) -> (B, Q)`."""
        logs = log_loss(logits, y)
        return torch.stack([torch.logsumexp(q * logs, 1) for q in self.orders], 1)

    def values(self, sums: FloatArray, draws: int) -> dict[float, FloatArray]:
        """`(E_delta l^q)^(1/q)` of every input, by q, from sums `(N, Q)` over `draws` draws."""
        return {
            q: np.exp((sums[:, column] - math.log(draws)) / q)
            for column, q in enumerate(self.orders)
        }

    def read(
        self, tally: Tally[Evaluate], clean: Tally[Evaluate], confidence: float, seed: int
    ) -> list[Estimate]:
        """For every q the stress, and the stress over the standard loss."""
        from nppr.statistics.estimates import estimate_stress  # not before PyTorch is needed

        assert tally.sums is not None
        assert clean.sums is not None
        standard = np.exp(clean.sums[:, 0])
        return [
            replace(row, order=q)
            for q, losses in self.values(tally.sums, tally.draws).items()
            for row in estimate_stress(tally, losses, standard, confidence, seed)
        ]
