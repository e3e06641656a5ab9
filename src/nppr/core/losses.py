"""Losses that attacks maximise and that stress measures use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return `max_{j != y} h_j - h_y`, `(B, classes), (B,) -> (B,)`: positive for wrong answers."""
    own = logits.gather(1, labels[:, None]).squeeze(1)
    others = logits.scatter(1, labels[:, None], -torch.inf)
    return others.amax(1) - own


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of every image, `(B, classes), (B,) -> (B,)`."""
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


def log_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the logarithm of the cross-entropy, `(B, S, classes), (B,) -> (B, S)`, as doubles.

    A loss of exactly 0 counts as the smallest positive number.
    """
    each = labels[:, None].expand(logits.shape[:2])
    loss = cross_entropy(logits.double().flatten(0, 1), each.flatten())
    return loss.clamp_min(torch.finfo(torch.float64).tiny).log().view(logits.shape[:2])
