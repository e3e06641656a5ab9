"""A source as a deterministic map of standard normal numbers, which a Markov chain can move.

A source that only draws numbers asks a `DrawBlock` for them, by stream. Here the block hands out the
coordinates of a point z in R^size instead: coordinates z for normal numbers, Phi(z) for uniform ones.
With z ~ N(0, I) the perturbation `push(z)` has the law of the source by construction, with its
projection to the budget, for it is the source's own code that makes it:

    gaussian   size D        clip(scale r z) in linf, the ball's projection of scale r z / sqrt(D) in l2
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

from nppr.draws import DrawBlock
from nppr.errors import SpecError
from nppr.noise.distribution import COMPONENT
from nppr.sources import Gaussian, Laplace, Learned, Uniform
from nppr.types import FrozenModel, PerturbationSource

__all__ = ["MOVABLE", "Latent", "latent_of"]

STREAM = "rare"
MOVABLE = (Gaussian, Uniform, Laplace, Learned)


@dataclass(frozen=True)
class _Slot:
    """Where the coordinates of a stream stand, and the shape its numbers are asked in."""

    start: int
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def coordinates(self) -> slice:
        return slice(self.start, self.start + self.count)


@dataclass(frozen=True, eq=False)
class Latent:
    """The map `(x, y, z) -> perturbation` of a source, for z of `size` standard normal numbers.

    `choosing` are the coordinates that choose a mixture's component: the map jumps in them.
    """

    source: PerturbationSource
    model: FrozenModel
    size: int
    choosing: slice
    slots: Mapping[str, _Slot] = field(repr=False)

    def push(self, x: Tensor, y: Tensor, z: Tensor, indices: tuple[int, ...]) -> Tensor:
        """Perturbations `(B, S, C, H, W)` of B inputs with labels `(B,)` from z `(B, S, size)`.

        `indices` are the B dataset indices, by which a learned source knows features it has met.
        """
        if z.shape[-1] != self.size:
            raise SpecError(f"`z` must have {self.size} coordinates, got {z.shape[-1]}.")
        folded = isinstance(self.source, Laplace)
        points = z.shape[1]
        draws = _Moved(
            0, STREAM, indices, 0, points, z.device, points, z=z, slots=self.slots, folded=folded
        )
        return self.source.perturb(self.model, x, y, draws).to(x.dtype)


def latent_of(source: PerturbationSource, model: FrozenModel, x: Tensor, y: Tensor) -> Latent:
    """The latent view of a source for images like `x` `(B, C, H, W)`; one of them is looked at.

    A source that searches, or whose numbers are not normal or uniform ones, is a `SpecError`.
    """
    if not isinstance(source, MOVABLE):
        raise SpecError(
            "`source` must be gaussian, uniform, laplace or a learned distribution for rare failures,"
            f" got {source.name!r}, whose noise cannot be moved. Leave it out."
        )
    slots: dict[str, _Slot] = {}
    # The index -1 is that of no input: features met here are not taken for those of another one.
    source.perturb(model, x[:1], y[:1], _Asked(0, STREAM, (-1,), 0, 1, x.device, slots=slots))
    size = sum(slot.count for slot in slots.values())
    choosing = slots[COMPONENT].coordinates if COMPONENT in slots else slice(0, 0)
    return Latent(source, model, size, choosing, slots)


@dataclass(frozen=True, kw_only=True)
class _Asked(DrawBlock):
    """Notes which numbers a source asks for; its answers are in the middle of their range."""

    slots: dict[str, _Slot]

    def _fill(self, stream: str, shape: tuple[int, ...], *, normal: bool) -> Tensor:
        start = sum(slot.count for slot in self.slots.values())
        self.slots.setdefault(stream, _Slot(start, shape))
        middle = 0.0 if normal else 0.5
        return torch.full((len(self.indices), self.size, *shape), middle, device=self.device)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Moved(DrawBlock):
    """Answers with the coordinates of given points z `(B, S, size)`."""

    z: Tensor
    slots: Mapping[str, _Slot]
    folded: bool

    def _fill(self, stream: str, shape: tuple[int, ...], *, normal: bool) -> Tensor:
        slot = self.slots[stream]
        z: Tensor = self.z[..., slot.coordinates].unflatten(-1, shape)
        if normal:
            return z.clone()  # sources work in place
        uniform: Tensor = _folded(z) if self.folded else torch.special.ndtr(z)
        return uniform


def _folded(z: Tensor) -> Tensor:
    """Uniform numbers `1/2 + sign(z) Phi(-|z|)`, whose distance from 1/2 falls with |z|.

    The Laplace noise of u is largest where u is near 1/2; so it grows with z, without a jump at 0.
    Near 1/2 single precision would be coarse: it is double where the device has it.
    """
    wide = z if z.device.type == "mps" else z.double()
    uniform: Tensor = 0.5 + torch.special.ndtr(-wide.abs()).copysign(wide)
    below = 0.5 - torch.finfo(wide.dtype).eps / 4  # the number before 1/2: it keeps the sign of z
    return torch.where(wide < 0, uniform.clamp_max(below), uniform)
