"""The noise of a source as a deterministic map of standard normal numbers, for use in Markov chains.

A source that only draws numbers requests them from a `DrawBlock`, by stream. Here the block returns
the coordinates of a point z in R^size instead: z for normal numbers, Phi(z) for uniform ones. With
z ~ N(0, I), the perturbation `push(z)` has the law of the source by construction, including the
projection to the budget, because the source's own code makes it:

    gaussian   size D        clip(scale r z) in linf, the projection of scale r z / sqrt(D) in l2
    uniform    size D        r (2 Phi(z) - 1) in linf; size D + 1 in l2, z/|z| times r Phi(z_0)^(1/D)
    laplace    size D        u = 1/2 + sign(z) Phi(-|z|), for which the quantile grows with z
    learned    the component (one coordinate), the normal noise, and the uniform noise of the floor
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel
from nppr.errors import SpecError
from nppr.noise.distribution import COMPONENT_STREAM
from nppr.sources import Source

_STREAM = "rare"


def fold_cdf(z: Tensor) -> Tensor:
    """Return uniform numbers `1/2 + sign(z) Phi(-|z|)`, whose distance from 1/2 falls with |z|.

    The Laplace noise of u is largest if u is near 1/2, so it grows with z, without a jump at 0.
    Single precision is coarse near 1/2, so the result is double if the device supports it.
    """
    wide = z if z.device.type == "mps" else z.double()
    uniform: Tensor = 0.5 + torch.special.ndtr(-wide.abs()).copysign(wide)
    below = 0.5 - torch.finfo(wide.dtype).eps / 4  # the number before 1/2: it keeps the sign of z
    return torch.where(wide < 0, uniform.clamp_max(below), uniform)


@dataclass(frozen=True, eq=False)
class Latent:
    """The map `(x, y, z) -> perturbation` of a source, for z of `size` standard normal numbers.

    The map is discontinuous in `choosing`, the coordinates that choose a mixture's component.
    """

    source: Source
    model: FrozenModel
    size: int
    choosing: slice
    slots: Mapping[str, slice] = field(repr=False)

    def push(self, x: Tensor, y: Tensor, z: Tensor, indices: tuple[int, ...]) -> Tensor:
        """Return perturbations `(B, S, C, H, W)` of B inputs with labels `(B,)` from z `(B, S, size)`.

        `indices` are the B dataset indices, by which a learned source looks up known features.
        """
        if z.shape[-1] != self.size:
            raise SpecError(f"`z` must have {self.size} coordinates, got {z.shape[-1]}.")
        points = z.shape[1]
        draws = _Given(0, _STREAM, indices, 0, points, z.device, points, z=z, latent=self)
        return self.source.perturb(self.model, x, y, draws).to(x.dtype)


def make_latent(source: Source, model: FrozenModel, x: Tensor, y: Tensor) -> Latent:
    """Return the latent map of a source; it perturbs the first image of x `(B, C, H, W)` once.

    Raises `SpecError` for a source that searches, or whose numbers are neither normal nor uniform.
    """
    if source.moved_by_splitting is not source:
        raise SpecError(
            "`source` must be fixed or learned noise for rare failures, got"
            f" {source.name!r}, which splitting cannot follow. Leave it out."
        )
    slots: dict[str, slice] = {}
    # The index -1 belongs to no input, so features found here are never used for another one.
    source.perturb(model, x[:1], y[:1], _Asked(0, _STREAM, (-1,), 0, 1, x.device, slots=slots))
    return Latent(source, model, _size(slots), slots.get(COMPONENT_STREAM, slice(0, 0)), slots)


@dataclass(frozen=True, kw_only=True)
class _Asked(DrawBlock):
    """Records which numbers a source requests; it returns the middle of their range."""

    slots: dict[str, slice]

    def _fill(self, stream: str, shape: tuple[int, ...], *, normal: bool) -> Tensor:
        start = _size(self.slots)
        self.slots.setdefault(stream, slice(start, start + math.prod(shape)))
        middle = 0.0 if normal else 0.5
        return torch.full((len(self.indices), self.size, *shape), middle, device=self.device)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Given(DrawBlock):
    """Returns the coordinates of given points z `(B, S, size)`."""

    z: Tensor
    latent: Latent

    def _fill(self, stream: str, shape: tuple[int, ...], *, normal: bool) -> Tensor:
        z: Tensor = self.z[..., self.latent.slots[stream]].unflatten(-1, shape)
        if normal:
            return z.clone()  # sources modify it in place
        uniform: Tensor = torch.special.ndtr(z)
        return fold_cdf(z) if self.latent.source.folds_uniform else uniform


def _size(slots: Mapping[str, slice]) -> int:
    return max((slot.stop for slot in slots.values()), default=0)
