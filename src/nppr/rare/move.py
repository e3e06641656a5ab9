"""The preconditioned Crank-Nicolson move, which leaves N(0, I) as it is.

`z' = sqrt(1 - beta^2) z + beta xi` with xi ~ N(0, I): if z ~ N(0, I) then so is z', and (z, z') has the
law of (z', z). So a chain that takes z' where it lies above a level, and stays at z elsewhere, leaves
N(0, I) above that level as it is, in any dimension (Cotter et al. 2013).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["START", "adapted", "proposed"]

START = 0.5
SMALLEST = 1e-3
TARGET = 0.44
"""Share of moves to be taken; between 0.3 and 0.5 it hardly matters."""

SWITCHING = 0.25
"""Share of points that try a component drawn afresh in a move."""


def proposed(
    z: Tensor, beta: Tensor, noise: Tensor, choosing: slice, switch: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Where points z `(B, S, size)` would go with steps `(B,)`, and which try another component.

    Coordinates in `choosing` are drawn afresh where the uniform numbers `switch` `(B, S)` are below
    SWITCHING and stay elsewhere: small steps would rarely lead to another component.
    """
    step = beta.to(z)[:, None, None]
    moved = (1 - step.square()).sqrt() * z + step * noise
    if switch is None:
        return moved, torch.zeros(z.shape[:2], dtype=torch.bool, device=z.device)
    switching = switch < SWITCHING
    fresh = torch.where(switching[..., None], noise[..., choosing], z[..., choosing])
    moved[..., choosing] = fresh
    return moved, switching


def adapted(beta: Tensor, taken: Tensor, switching: Tensor) -> Tensor:
    """Steps `(B,)` after a move that `taken` `(B, S)` says was taken or not: towards TARGET.

    Points that tried another component do not count: a shorter step would not help them.
    """
    counted = (~switching).double()
    share = (taken * counted).sum(1) / counted.sum(1).clamp_min(1)
    return (beta * (share - TARGET).exp()).clamp(SMALLEST, 1.0)
