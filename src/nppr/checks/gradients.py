"""Do gradients lead anywhere? Attacks and fits follow them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nppr.budget import Budget, perturbed
from nppr.classifiers import FrozenClassifier, is_out_of_memory
from nppr.draws import DrawBlock
from nppr.errors import ClassifierError, GradientError
from nppr.flags import (
    ATTACK_FAILS,
    EXPLODING_GRADIENTS,
    NAN_GRADIENTS,
    NO_GRADIENTS,
    ZERO_GRADIENTS,
    flag,
)
from nppr.report.schema import Flag
from nppr.sources import PGD
from nppr.sources.losses import margin

__all__ = ["check_gradients"]

EXPLODING = 1e6
"""Euclidean length of the gradient of the cross-entropy in an image in [0, 1] that is too long."""

ZERO_SHARE = 0.5
"""Share of the inputs without any gradient from which on it is flagged."""

ATTACKED = 16
STEPS = 20
UNBROKEN_SHARE = 0.1
"""Share of the attacked inputs that may stand although any image can be reached."""


def check_gradients(model: FrozenClassifier, x: Tensor, y: Tensor, seed: int) -> tuple[Flag, ...]:
    """Flags of the gradients at images `(B, C, H, W)` with labels `(B,)`."""
    try:
        steepness, _ = model.gradient(lambda logits: _cross_entropy(logits, y), x)
        slope, logits = model.gradient(lambda logits: margin(logits, y), x)
        return (
            *_check_sizes(steepness.flatten(1), slope.flatten(1)),
            *_check_attack(model, x, y, logits.argmax(1) == y, seed),
        )
    except (GradientError, ClassifierError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        reason = "the model gives no gradients"
        if not isinstance(error, GradientError):  # the pass back through a foreign model failed
            reason += f" ({' '.join(str(error).split())[:120]})"
        message = f"{reason}: attacks and NPPR cannot be measured"
        return (Flag(id=NO_GRADIENTS, source=None, message=message),)


def _check_sizes(steepness: Tensor, slope: Tensor) -> tuple[Flag, ...]:
    """Gradients of the cross-entropy and of the margin, both `(B, D)`.

    The cross-entropy of an input that is right beyond doubt has an honest gradient of 0; that of the
    margin `h_y - max_(j != y) h_j` does not vanish there. So only where both are 0 there is none.
    """
    broken = ~(torch.isfinite(steepness) & torch.isfinite(slope)).all(1)
    if bool(broken.any()):
        return (flag(NAN_GRADIENTS, f"{_share(broken)} have gradients that are NaN or Inf"),)
    flags = []
    nothing = (steepness == 0).all(1) & (slope == 0).all(1)
    if float(nothing.float().mean()) >= ZERO_SHARE:
        flags.append(flag(ZERO_GRADIENTS, f"{_share(nothing)} have a gradient of exactly 0"))
    longest = float(steepness.double().norm(dim=1).max())
    if longest > EXPLODING:
        flags.append(flag(EXPLODING_GRADIENTS, f"a gradient has length {longest:.2g}"))
    return tuple(flags)


def _check_attack(
    model: FrozenClassifier, x: Tensor, y: Tensor, right: Tensor, seed: int
) -> tuple[Flag, ...]:
    """PGD that may reach any image, from the image itself: only gradients can lead it away."""
    rows = right.nonzero().flatten()[:ATTACKED]
    if not len(rows):
        return ()
    x, y = x[rows], y[rows]
    draws = DrawBlock(seed, "check", tuple(range(len(x))), 0, 1, x.device, 1)
    attack = PGD(Budget.linf(1.0), steps=STEPS, random_start=False)
    found = perturbed(x, attack.perturb(model, x, y, draws)[:, 0])
    with torch.no_grad():
        standing = model.logits(found).argmax(1) == y
    if float(standing.float().mean()) <= UNBROKEN_SHARE:
        return ()
    return (flag(ATTACK_FAILS, f"{_share(standing)} withstand {STEPS} steps of PGD of radius 1"),)


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y, reduction="none")


def _share(chosen: Tensor) -> str:
    return f"{int(chosen.sum())} of {len(chosen)} inputs"
