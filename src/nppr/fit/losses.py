"""What a fit minimises: smooth stand-ins for "the answer is right", and optional regularisers.

Each loss maps logits `(B, classes)` and labels `(B,)` to one number per image, small where the
answer is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.distributions import Given

__all__ = ["LOSSES", "Loss", "cross_entropy", "margin", "regulariser"]

Loss = Callable[[Tensor, Tensor, float], Tensor]


def margin(logits: Tensor, labels: Tensor, kappa: float) -> Tensor:
    """`softplus(h_y - max_{j != y} h_j + kappa)`, the paper's loss."""
    own = logits.gather(1, labels[:, None])
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return F.softplus(own.squeeze(1) - others.amax(1) + kappa)


def cross_entropy(logits: Tensor, labels: Tensor, kappa: float) -> Tensor:
    """Minus the cross-entropy: `log p_y`, not below `-kappa - 10`, or a few inputs would dominate."""
    return -F.cross_entropy(logits, labels, reduction="none").clamp_max(kappa + 10)


LOSSES: dict[str, Loss] = {"margin": margin, "cross-entropy": cross_entropy}


def regulariser(given: Given, entropy: float, diversity: float) -> Tensor:
    """`-entropy * H(weights) + diversity * similarity of the means`, averaged over contexts.

    The similarity is the mean squared cosine between two components. Both keep components apart
    while they search.
    """
    total = given.means.new_zeros(())
    if entropy:
        weights = given.log_weights.exp()
        total = total + entropy * (weights * given.log_weights).sum(-1).mean()
    if diversity and given.means.shape[1] > 1:
        unit = F.normalize(given.means, dim=-1)
        cosines = (unit @ unit.transpose(-1, -2)).square()
        pairs = given.means.shape[1] * (given.means.shape[1] - 1)
        own = cosines.diagonal(dim1=-2, dim2=-1).sum(-1)
        total = total + diversity * ((cosines.sum((-1, -2)) - own) / pairs).mean()
    return total
