"""The admissible perturbations: a norm ball, and the geometry that belongs to it.

A perturbation is a tensor `(..., C, H, W)`; its last three dimensions are the vector, D = C*H*W.
The budget lives on the tensor the classifier is given: after any resize of the data, before the
normalisation, which is inside the classifier wrapper.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from nppr.errors import BudgetBreach, BudgetError, unknown
from nppr.random_draws import DrawBlock

if TYPE_CHECKING:
    from torch import Tensor


VECTOR = (-3, -2, -1)
TOLERANCE = 1e-5
"""Excess over the radius, relative to it, that counts as rounding, not as a breach."""

PIXEL_TOLERANCE = 2.0**-23
"""The same for each pixel: `(x + delta) - x` is `delta` up to the rounding of numbers near 1."""


@dataclass(frozen=True)
class Norm(ABC):
    """A distance that owns its geometry; `r` is the radius of the ball throughout."""

    name: ClassVar[str]

    @abstractmethod
    def size(self, delta: Tensor) -> Tensor:
        """|delta|: `(..., C, H, W) -> (...)`."""

    @abstractmethod
    def clip(self, delta: Tensor, r: float) -> Tensor:
        """The nearest point of the ball (in this norm's usual projection)."""

    @abstractmethod
    def squash(self, v: Tensor, r: float | Tensor) -> Tensor:
        """A smooth map of all of R^D into the ball."""

    @abstractmethod
    def steepest(self, gradient: Tensor) -> Tensor:
        """The direction of unit size that increases a linear function most."""

    @abstractmethod
    def noise_scale(self, r: float, dimension: int) -> float:
        """Scale per pixel at which noise has about the size of the ball."""

    @abstractmethod
    def uniform(self, draws: DrawBlock, stream: str, shape: tuple[int, ...], r: float) -> Tensor:
        """Uniform draws in the ball, `(B, S, C, H, W)` for `shape` = (C, H, W)."""


@dataclass(frozen=True)
class Linf(Norm):
    """The largest absolute pixel change."""

    name = "linf"

    def size(self, delta: Tensor) -> Tensor:
        # Two reductions are cheaper than a copy of |delta|.
        return torch.maximum(delta.amax(VECTOR), -delta.amin(VECTOR))

    def clip(self, delta: Tensor, r: float) -> Tensor:
        return delta.clamp(-r, r)

    def squash(self, v: Tensor, r: float | Tensor) -> Tensor:
        return r * torch.tanh(v)

    def steepest(self, gradient: Tensor) -> Tensor:
        return gradient.sign()

    def noise_scale(self, r: float, dimension: int) -> float:
        return r

    def uniform(self, draws: DrawBlock, stream: str, shape: tuple[int, ...], r: float) -> Tensor:
        return draws.uniform(stream, shape).mul_(2 * r).sub_(r)


@dataclass(frozen=True)
class L2(Norm):
    """The Euclidean length of the change."""

    name = "l2"

    def size(self, delta: Tensor) -> Tensor:
        return _lengths(delta).flatten(-3)[..., 0]

    def clip(self, delta: Tensor, r: float) -> Tensor:
        length = _lengths(delta)
        return delta * (r / length.clamp_min(r))

    def squash(self, v: Tensor, r: float | Tensor) -> Tensor:
        """`r v/|v| tanh(|v| / sqrt(D))`: into the ball, not onto its sphere."""
        dimension = math.prod(v.shape[-3:])
        length = _lengths(v).clamp_min(torch.finfo(v.dtype).tiny)
        return v * (r * torch.tanh(length / math.sqrt(dimension)) / length)

    def steepest(self, gradient: Tensor) -> Tensor:
        return gradient / _lengths(gradient).clamp_min(torch.finfo(gradient.dtype).tiny)

    def noise_scale(self, r: float, dimension: int) -> float:
        return r / math.sqrt(dimension)

    def uniform(self, draws: DrawBlock, stream: str, shape: tuple[int, ...], r: float) -> Tensor:
        """A random direction times `r u^(1/D)`."""
        direction = self.steepest(draws.normal(stream, shape))
        u = draws.uniform(f"{stream}/length", (1, 1, 1))
        return direction * (r * u ** (1 / math.prod(shape)))


NORMS: dict[str, Norm] = {norm.name: norm for norm in (Linf(), L2())}


@dataclass(frozen=True)
class Budget:
    """The ball of admissible perturbations, `{delta : |delta| <= radius}`.

    >>> budget = Budget.linf("8/255")
    >>> budget
    Budget(linf, 8/255)
    >>> budget.contains(budget.clip(torch.ones(2, 3, 4, 4)))
    tensor([True, True])
    """

    norm: Norm
    radius: float

    def __post_init__(self) -> None:
        if not isinstance(self.norm, Norm):
            raise BudgetError(
                f"`norm` must be a Norm, got {self.norm!r}. Example: Budget.linf('8/255')"
            )
        object.__setattr__(self, "radius", parse_radius(self.radius))

    @classmethod
    def linf(cls, radius: float | str) -> Budget:
        """Every pixel changes by at most `radius`."""
        return cls.parse("linf", radius)

    @classmethod
    def l2(cls, radius: float | str) -> Budget:
        """The change has Euclidean length at most `radius`."""
        return cls.parse("l2", radius)

    @classmethod
    def parse(cls, norm: str, radius: float | str) -> Budget:
        """From the text of a command line or a report.

        >>> Budget.parse("l2", "0.5").radius
        0.5
        """
        if norm not in NORMS:
            raise unknown("norm", norm, NORMS)
        return cls(NORMS[norm], parse_radius(radius))

    def size(self, delta: Tensor) -> Tensor:
        """Size of each perturbation, `(..., C, H, W) -> (...)`."""
        return self.norm.size(delta)

    def contains(self, delta: Tensor) -> Tensor:
        """Which perturbations lie in the ball, up to rounding; NaN never does."""
        return self._holds(self.size(delta), math.prod(delta.shape[-3:]))

    def clip(self, delta: Tensor) -> Tensor:
        """Project into the ball."""
        return self.norm.clip(delta, self.radius)

    def uniform(self, draws: DrawBlock, stream: str, shape: tuple[int, ...]) -> Tensor:
        """Uniform draws in the ball, `(B, S, C, H, W)` for `shape` = (C, H, W)."""
        return self.norm.uniform(draws, stream, shape, self.radius)

    def squash(self, v: Tensor, scale: Tensor | None = None) -> Tensor:
        """g_B of the paper: a smooth map of all of R^D into the ball, or into `scale` <= 1 of it."""
        return self.norm.squash(v, self.radius if scale is None else self.radius * scale)

    def require(self, delta: Tensor, source: str) -> None:
        """Raise `BudgetBreach` unless every perturbation lies in the ball."""
        size = self.size(delta)
        if not bool(self._holds(size, math.prod(delta.shape[-3:])).all()):
            worst = float(size.nan_to_num(math.inf, math.inf).max())
            raise BudgetBreach(
                f"source {source!r} must stay within {self}, got a perturbation of size"
                f" {worst:.6g}. Clip it with Budget.clip or state the larger budget."
            )

    def _holds(self, size: Tensor, dimension: int) -> Tensor:
        # All pixels together round by sqrt(D) times as much in the Euclidean norm.
        rounding = PIXEL_TOLERANCE / self.norm.noise_scale(1.0, dimension)
        return size <= self.radius * (1 + TOLERANCE) + rounding

    @property
    def radius_text(self) -> str:
        """The radius as people write it: `0.1`, but `8/255` rather than `0.0313725`."""
        decimal = f"{self.radius:.6g}"
        levels = self.radius * 255
        near = round(levels * 2) / 2
        if near and math.isclose(levels, near, rel_tol=1e-9):
            return min(decimal, f"{near:g}/255", key=len)
        return decimal

    def __repr__(self) -> str:
        return f"Budget({self.norm.name}, {self.radius_text})"

    def __str__(self) -> str:
        return f"{self.norm.name} {self.radius_text}"


def parse_radius(radius: float | str) -> float:
    """A radius from a number or from text such as `8/255`.

    >>> parse_radius("8/255") == 8 / 255
    True
    """
    try:
        above, slash, below = radius.partition("/") if isinstance(radius, str) else (radius, "", 1)
        value = float(above) / float(below) if slash else float(above)
    except (ValueError, ZeroDivisionError, TypeError):
        value = math.nan
    if not 0 < value < math.inf:
        raise BudgetError(f"`radius` must be a number > 0, got {radius!r}. Example: 8/255")
    return value


def perturbed(x: Tensor, delta: Tensor, *, quantise: bool = False) -> Tensor:
    """What the classifier is given, in fitting and in measuring: `clip(x + delta)` to [0, 1].

    With `quantise` it is rounded to 8 bits.
    """
    moved = (x + delta).clamp_(0.0, 1.0)
    return quantised(moved) if quantise else moved


def quantised(x: Tensor) -> Tensor:
    """The nearest 8-bit images."""
    return x.mul(255).round_().div_(255)


def _lengths(v: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(v, dim=VECTOR, keepdim=True)
    return lengths
