"""What attacks increase and what stress reads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["log_loss", "margin"]


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """`max_{j != y} h_j - h_y`, `(B, classes), (B,) -> (B,)`: positive where the answer is wrong."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return others.amax(1) - own


def log_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The logarithm of the cross-entropy, `(B, S, classes), (B,) -> (B, S)`, in double precision.

    A loss of exactly 0 counts as the smallest positive number.
    """
    each = labels[:, None].expand(logits.shape[:2])
    loss = F.cross_entropy(logits.double().flatten(0, 1), each.flatten(), reduction="none")
    return loss.clamp_min(torch.finfo(torch.float64).tiny).log().view(logits.shape[:2])
