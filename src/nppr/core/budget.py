"""Admissible perturbations: the set they lie in, and the map that applies them to an image.

    additive         x + delta       delta in a norm ball, with the shape (C, H, W) of an image
    transformation   T(x, theta)     theta in a box; delta `(P, 1, 1)` are its P coordinates in [-r,
    r]

The last three dimensions of a perturbation are one vector of D = C*H*W or P numbers. A budget
applies to the tensor that the classifier receives: after any resizing of the data and before the
normalisation, which is part of the classifier wrapper.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import torch

from nppr.core.nouns import Nouns, choose_nouns
from nppr.core.radius import parse_radius
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import FrozenModel
from nppr.core.transformations import Transform, parse_transform
from nppr.errors import BudgetBreach, BudgetError, GradientError, unknown

if TYPE_CHECKING:
    from torch import Tensor


VECTOR = (-3, -2, -1)
RADIUS_TOLERANCE = 1e-5
"""Relative excess over the radius that counts as rounding error, not as a breach."""

PIXEL_TOLERANCE = 2.0**-23
"""The same for one pixel: `(x + delta) - x` equals `delta` up to the rounding of numbers near 1."""


@dataclass(frozen=True)
class Norm(ABC):
    """A norm and the geometry of its ball; `r` is the radius of the ball."""

    name: ClassVar[str]

    @abstractmethod
    def size(self, delta: Tensor) -> Tensor:
        """Return |delta|, `(..., C, H, W) -> (...)`."""

    @abstractmethod
    def clip(self, delta: Tensor, r: float) -> Tensor:
        """Project to the ball in the norm's usual way."""

    @abstractmethod
    def squash(self, v: Tensor, r: float | Tensor) -> Tensor:
        """Map all of R^D smoothly into the ball."""

    @abstractmethod
    def steepest(self, gradient: Tensor) -> Tensor:
        """Return the direction of unit size that increases a linear function most."""

    @abstractmethod
    def noise_scale(self, r: float, dimension: int) -> float:
        """Return the scale per pixel at which noise has about the size of the ball."""

    @abstractmethod
    def uniform(self, draws: DrawBlock, stream: str, shape: tuple[int, ...], r: float) -> Tensor:
        """Draw uniformly from the ball, `(B, S, C, H, W)` for `shape` = (C, H, W)."""

    def normal(
        self, draws: DrawBlock, stream: str, shape: tuple[int, ...], r: float, scale: float
    ) -> Tensor:
        """Draw normal noise of `scale` times the ball's size, `(B, S, *shape)`, without projection."""
        std = scale * self.noise_scale(r, math.prod(shape))
        return draws.normal(stream, shape).mul_(std)


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
class BoxNorm(Linf):
    """The largest absolute coordinate of a transformation's parameters; 1 is an end of the range."""

    name = "box"

    def normal(
        self, draws: DrawBlock, stream: str, shape: tuple[int, ...], r: float, scale: float
    ) -> Tensor:
        """Draw around the middle with standard deviation `scale r / 2`, truncated at +-r.

        Computes `Phi^-1` of uniform numbers between Phi(-r / std) and Phi(r / std).
        """
        std = scale * r / 2
        tail = 0.5 * math.erfc(r / std / math.sqrt(2))
        uniform = draws.uniform(stream, shape).mul_(1 - 2 * tail).add_(tail)
        drawn: Tensor = torch.special.ndtri(uniform).mul_(std).clamp_(-r, r)
        return drawn


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
        """Map v to `r v/|v| tanh(|v| / sqrt(D))`: into the ball, not onto its sphere."""
        dimension = math.prod(v.shape[-3:])
        length = _lengths(v).clamp_min(torch.finfo(v.dtype).tiny)
        return v * (r * torch.tanh(length / math.sqrt(dimension)) / length)

    def steepest(self, gradient: Tensor) -> Tensor:
        return gradient / _lengths(gradient).clamp_min(torch.finfo(gradient.dtype).tiny)

    def noise_scale(self, r: float, dimension: int) -> float:
        return r / math.sqrt(dimension)

    def uniform(self, draws: DrawBlock, stream: str, shape: tuple[int, ...], r: float) -> Tensor:
        """Draw a random direction times `r u^(1/D)`."""
        direction = self.steepest(draws.normal(stream, shape))
        u = draws.uniform(f"{stream}/length", (1, 1, 1))
        return direction * (r * u ** (1 / math.prod(shape)))


NORMS: dict[str, Norm] = {norm.name: norm for norm in (Linf(), L2())}


@dataclass(frozen=True)
class Budget:
    """The ball of admissible perturbations, `{delta : |delta| <= radius}`.

    With a `transform`, it is the box of the parameters; a radius below 1 shrinks the box.

    >>> budget = Budget.linf("8/255")
    >>> budget
    Budget(linf, 8/255)
    >>> budget.contains(budget.clip(torch.ones(2, 3, 4, 4)))
    tensor([True, True])
    >>> Budget.box("rotate=15,exposure=0.5")
    Budget(box, rotate ±15 deg, exposure ±0.5 stops)
    """

    norm: Norm
    radius: float
    transform: Transform | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.norm, Norm):
            raise BudgetError(
                f"`norm` must be a Norm, got {self.norm!r}. Example: Budget.linf('8/255')"
            )
        object.__setattr__(self, "radius", parse_radius(self.radius))
        if self.transform is not None and self.radius > 1:
            raise BudgetError(
                f"`radius` of a transformation must be at most 1, which is its full ranges, got"
                f" {self.radius:g}. State wider ranges instead."
            )
        if self.transform is not None and self.radius < 1 and not self.transform.shrinkable:
            raise BudgetError(
                f"`radius` must be 1 for ranges that do not contain the values that change nothing"
                f" ({self.transform.text_at()}): they cannot be shrunk. State smaller ranges instead."
            )

    @classmethod
    def linf(cls, radius: float | str) -> Budget:
        """Return the budget in which every pixel changes by at most `radius`."""
        return cls.parse("linf", radius)

    @classmethod
    def l2(cls, radius: float | str) -> Budget:
        """Return the budget in which the change has Euclidean length at most `radius`."""
        return cls.parse("l2", radius)

    @classmethod
    def box(cls, transform: str | Transform, radius: float | str = 1.0) -> Budget:
        """Return the budget of a transformation's parameter ranges, such as "rotate=15,blur=2"."""
        made = parse_transform(transform) if isinstance(transform, str) else transform
        if not isinstance(made, Transform):
            raise BudgetError(
                f"`transform` must be text or a Transform, got {made!r}."
                " Example: Budget.box('rotate=15')"
            )
        return cls(BoxNorm(), parse_radius(radius), made)

    @classmethod
    def parse(cls, spec: str, radius: float | str) -> Budget:
        """Return the budget of a norm, or of the ranges of a transformation, as written in a study.

        >>> Budget.parse("l2", "0.5").radius
        0.5
        """
        if "=" in spec:
            return cls.box(spec, radius)
        if spec not in NORMS:
            raise unknown("norm", spec, NORMS)
        return cls(NORMS[spec], parse_radius(radius))

    @property
    def nouns(self) -> Nouns:
        """The words that name its perturbations in texts."""
        return choose_nouns(self.norm.name)

    @property
    def spec(self) -> str:
        """The norm, or the ranges of the transformation, as `parse` accepts them."""
        return self.norm.name if self.transform is None else self.transform.spec

    def at(self, radius: float | str) -> Budget:
        """Return the same budget with another radius."""
        return replace(self, radius=parse_radius(radius))

    def domain(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Return the shape of perturbations of images of `shape` (C, H, W)."""
        if self.transform is None:
            channels, height, width = shape
            return channels, height, width
        self.transform.require_shape(shape)
        return len(self.transform.box), 1, 1

    def parameters(self, delta: Tensor) -> Tensor:
        """Return the parameters `(..., P)` of a transformation for perturbations `(..., P, 1, 1)`."""
        assert self.transform is not None
        return self.transform.parameters(delta.flatten(-3), self.radius)

    def apply(self, x: Tensor, delta: Tensor) -> Tensor:
        """Perturb images `(..., C, H, W)` without clipping; leading dimensions are broadcast."""
        if self.transform is None:
            return x + delta
        theta = self.parameters(delta)
        leading = torch.broadcast_shapes(x.shape[:-3], theta.shape[:-1])
        images = x.expand(*leading, *x.shape[-3:]).reshape(-1, *x.shape[-3:])
        theta = theta.expand(*leading, -1).reshape(len(images), -1)
        return self.transform.images(images, theta).view(*leading, *x.shape[-3:])

    def gradient(
        self, model: FrozenModel, loss: Callable[[Tensor], Tensor], x: Tensor, delta: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the gradient in delta of the sum of `loss(logits)` of perturbed x, and the logits.

        The clipping of images to [0, 1] is ignored: the gradient passes through it.
        """
        if self.transform is None:
            return model.gradient(loss, (x + delta).clamp(0, 1))
        with torch.enable_grad():
            inner = delta.detach().requires_grad_(True)
            moved = self.apply(x, inner)
        slope, logits = model.gradient(loss, moved.detach().clamp(0, 1))
        require_graph(moved)
        (found,) = torch.autograd.grad(moved, inner, slope, allow_unused=True)
        require_graph(moved if found is not None else moved.detach())
        return found, logits

    def size(self, delta: Tensor) -> Tensor:
        """Return the size of each perturbation, `(..., C, H, W) -> (...)`."""
        return self.norm.size(delta)

    def contains(self, delta: Tensor) -> Tensor:
        """Whether each perturbation lies in the ball, up to rounding; False for NaN."""
        return self._holds(self.size(delta), math.prod(delta.shape[-3:]))

    def clip(self, delta: Tensor) -> Tensor:
        """Project perturbations into the ball."""
        return self.norm.clip(delta, self.radius)

    def uniform(self, draws: DrawBlock, stream: str, shape: tuple[int, ...]) -> Tensor:
        """Draw uniformly from the ball, `(B, S, C, H, W)` for `shape` = (C, H, W)."""
        return self.norm.uniform(draws, stream, shape, self.radius)

    def squash(self, v: Tensor, scale: Tensor | None = None) -> Tensor:
        """Map all of R^D smoothly into the ball, or into `scale` <= 1 of it (g_B of the paper)."""
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
        # In the Euclidean norm, the rounding errors of D pixels add up to sqrt(D) times one.
        rounding = PIXEL_TOLERANCE / self.norm.noise_scale(1.0, dimension)
        return size <= self.radius * (1 + RADIUS_TOLERANCE) + rounding

    @property
    def radius_text(self) -> str:
        """The radius in its usual form: `0.1`, but `8/255` rather than `0.0313725`."""
        decimal = f"{self.radius:.6g}"
        levels = self.radius * 255
        near = round(levels * 2) / 2
        if near and math.isclose(levels, near, rel_tol=1e-9):
            return min(decimal, f"{near:g}/255", key=len)
        return decimal

    @property
    def text(self) -> str:
        """The radius, or the ranges of the transformation, in their usual form."""
        return self.radius_text if self.transform is None else self.transform.text_at(self.radius)

    def __repr__(self) -> str:
        return f"Budget({self.norm.name}, {self.text})"

    def __str__(self) -> str:
        return f"{self.norm.name} {self.text}" if self.transform is None else self.text


def perturbed(
    x: Tensor, delta: Tensor, budget: Budget | None = None, *, quantise: bool = False
) -> Tensor:
    """Return x under a perturbation of the budget, clipped to [0, 1], for the classifier.

    Without a budget, the perturbation is added. `quantise` rounds the result to 8 bits.
    """
    moved = x + delta if budget is None else budget.apply(x, delta)
    moved = moved.clamp_(0.0, 1.0)
    return quantised(moved) if quantise else moved


def require_graph(moved: Tensor) -> None:
    """Raise `GradientError` if transformed images have no gradient in the parameters."""
    if not moved.requires_grad:
        raise GradientError(
            "the transformation must be differentiable in its parameters for attacks and searches by"
            " gradients, and is not: use PyTorch operations, or --search scores."
        )


def quantised(x: Tensor) -> Tensor:
    """Return the nearest 8-bit images."""
    return x.mul(255).round_().div_(255)


def _lengths(v: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(v, dim=VECTOR, keepdim=True)
    return lengths
