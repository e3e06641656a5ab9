"""The admissible set an assessor states: which mixtures a search may choose from.

Nothing here imports PyTorch, so that a command line is checked, and a report read, without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from nppr.errors import SpecError, require_at_most, unknown
from nppr.noise.admissible_set import AdmissibleSet
from nppr.noise.covariance import check_covariance
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY, STRUCTURES

FLOOR_NOISE = "uniform"
"""The source that the floor mixes in, whose stream it draws from: with rho = 1 both are the same."""

MOST_PARAMETERS = 2**16
"""Components, latent dimensions, sides of a grid or widths of a network, at most."""

UPSAMPLERS = ("none", "bicubic", "trainable", "multiscale")

KEYS_KERNEL = -0.5
"""Kernel parameter of the paper's appendix: exact for quadratic signals."""

TORCH_KERNEL = -0.75
"""Kernel parameter of `torch.nn.functional.interpolate`, which the authors' code calls."""


_OPTIONAL = ("latent_dim", "grid", "correlation_length")
_COUNTS = ("components", "hidden_dim", "label_dim", *_OPTIONAL)


class Rule(StrEnum):
    """The way to choose a component for an input: by the weights, or sharpened."""

    WEIGHTS = "weights"
    LARGEST = "largest"
    CHOSEN = "chosen"


@dataclass(frozen=True)
class Temperatures:
    """The temperatures of the paper, all 1 outside its preset.

    The logits of the weights are multiplied by `weights`, means and standard deviations by `means`
    and `stds`, and what the heads share by `shared`: above 1 all of them move faster.
    """

    weights: float = 1.0
    means: float = 1.0
    stds: float = 1.0
    shared: float = 1.0


COLD = Temperatures()


@dataclass(frozen=True)
class Family:
    """A family of distributions: what the noise sees, its components, resolution and randomness.

    `structure` is what the noise is made of, a name of `STRUCTURES`; `correlation_length` is that of
    stationary noise in pixels, by default 9 or a third of the shorter side, whichever is smaller.
    `grid` is the side of the coarse grid of `bicubic` and `trainable`, by default 4 for images of up
    to 32 pixels and 7 for larger ones. `floor` is rho: the weight of Uniform noise in every draw.
    `hidden_dim` is the width of what sees the features, and the number of directions in which they
    move the means. `label_only` (the paper's preset) hides the features from the weights of JOINT;
    `scaled` is whether the scale s is learned; `wide_heads` whether features move every mean and
    every number of a covariance by themselves, or means along shared directions and the size of a
    covariance. With `random_start` (the paper's preset) heads and the trainable up-sampler start at
    random, and what a head gives has no free part: such a family has no parent to start at.
    """

    dependency: Dependency = Dependency.JOINT
    components: int = 1
    covariance: str = "diag"
    upsampler: str = "none"
    latent_dim: int | None = None
    grid: int | None = None
    hidden_dim: int = 256
    label_dim: int = 64
    min_std: float = 0.05
    floor: float = 0.0
    kernel: float = KEYS_KERNEL
    label_only: bool = False
    scaled: bool = True
    wide_heads: bool = False
    random_start: bool = False
    structure: str = ANY
    correlation_length: int | None = None

    def __post_init__(self) -> None:
        if self.dependency not in list(Dependency):
            raise unknown("dependency", str(self.dependency), list(Dependency))
        object.__setattr__(self, "dependency", Dependency(self.dependency))
        if not self.dependency.is_fitted:
            raise SpecError(f"`dependency` of a family of mixtures must not be {self.dependency}.")
        if self.structure not in STRUCTURES:
            raise unknown("structure", self.structure, STRUCTURES)
        rungs = STRUCTURES[self.structure].rungs
        if self.dependency not in rungs:
            raise SpecError(
                f"`dependency` of {self.structure} noise must be {' or '.join(rungs)},"
                f" got {self.dependency}."
            )
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                require_count(name.replace("_", "-"), value)
                require_at_most(name.replace("_", "-"), value, MOST_PARAMETERS)
        if not (_is_number(self.min_std) and 0 < self.min_std < math.inf):
            raise SpecError(f"`min-std` must be a number > 0, got {self.min_std!r}. Example: 0.05")
        if not (_is_number(self.floor) and 0 <= self.floor <= 1):
            raise SpecError(f"`floor` must lie in [0, 1], got {self.floor!r}. Example: 0,0.5")
        if not (_is_number(self.kernel) and -1 <= self.kernel <= 0):
            raise SpecError(f"`kernel` must lie in [-1, 0], got {self.kernel!r}. Example: -0.5")
        check_covariance(self.covariance)
        if self.upsampler not in UPSAMPLERS:
            raise unknown("upsampler", self.upsampler, UPSAMPLERS)
        if self.latent_dim is not None and self.upsampler != "trainable":
            raise SpecError(
                f"`latent-dim` must be left out with --upsampler {self.upsampler}, which fixes it,"
                f" got {self.latent_dim}. Choose --upsampler trainable."
            )

    @property
    def admissible(self) -> AdmissibleSet:
        """The admissible set of its noise."""
        return AdmissibleSet(self.dependency, self.structure, self.floor)

    def with_(self, **changes: Any) -> Family:
        """Return the family with some of its settings changed."""
        return replace(self, **changes)


def require_count(argument: str, value: object) -> None:
    """Raise `SpecError` unless the value is a whole number of at least 1."""
    if type(value) is not int or value < 1:
        raise SpecError(f"`{argument}` must be a whole number >= 1, got {value!r}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
