"""The admissible set an assessor states: which mixtures a fit searches."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from nppr.distributions.bicubic import KEYS
from nppr.distributions.dependency import Dependency
from nppr.distributions.upsample import UPSAMPLERS
from nppr.errors import SpecError, unknown

__all__ = ["COVARIANCES", "Family"]

COVARIANCES = ("diag", "full", "lowrank:R")


@dataclass(frozen=True)
class Family:
    """A family of distributions: what the noise sees, its components, resolution and randomness.

    `grid` is the side of the coarse grid of `bicubic` and `trainable`, by default 4 for images of up
    to 32 pixels and 7 for larger ones. `floor` is rho: the share of Uniform noise in every draw.
    `hidden_dim` is the width of what sees the features, and the number of directions in which they
    move the means. `label_only` (the paper's preset) hides the features from the weights of JOINT;
    `scaled` is whether the scale s is learned; `wide_heads` whether features move every mean and
    every number of a covariance by themselves, or means along shared directions and the size of a
    covariance.
    """

    dependency: Dependency = Dependency.JOINT
    components: int = 7
    covariance: str = "diag"
    upsampler: str = "none"
    latent_dim: int | None = None
    grid: int | None = None
    hidden_dim: int = 128
    label_dim: int = 64
    min_std: float = 0.05
    floor: float = 0.0
    kernel: float = KEYS
    label_only: bool = False
    scaled: bool = True
    wide_heads: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.dependency, Dependency):
            raise unknown("dependency", str(self.dependency), list(Dependency))
        for name in ("components", "latent_dim", "grid", "hidden_dim", "label_dim"):
            value = getattr(self, name)
            free = value is None and name in ("latent_dim", "grid")
            if not free and (type(value) is not int or value < 1):
                argument = name.replace("_", "-")
                raise SpecError(f"`{argument}` must be a whole number >= 1, got {value!r}.")
        if not (_number(self.min_std) and 0 < self.min_std < math.inf):
            raise SpecError(f"`min-std` must be a number > 0, got {self.min_std!r}. Example: 0.05")
        if not (_number(self.floor) and 0 <= self.floor <= 1):
            raise SpecError(f"`floor` must lie in [0, 1], got {self.floor!r}. Example: 0,0.5")
        if not (_number(self.kernel) and -1 <= self.kernel <= 0):
            raise SpecError(f"`kernel` must lie in [-1, 0], got {self.kernel!r}. Example: -0.5")
        if not isinstance(self.covariance, str):
            raise unknown("covariance", str(self.covariance), COVARIANCES)
        if self.covariance.partition(":")[0] not in ("diag", "full", "lowrank"):
            raise unknown("covariance", self.covariance, COVARIANCES)
        if self.covariance.startswith(("diag:", "full:")):
            raise unknown("covariance", self.covariance, COVARIANCES)
        if self.upsampler not in UPSAMPLERS:
            raise unknown("upsampler", self.upsampler, UPSAMPLERS)

    def with_(self, **changes: Any) -> Family:
        """The same family but for some of its settings."""
        return replace(self, **changes)

    def grid_for(self, side: int) -> int:
        """The side of the coarse grid for images of this many pixels a side."""
        return self.grid or (4 if side <= 32 else 7)

    def as_dict(self) -> dict[str, Any]:
        """All settings as plain values."""
        return {**asdict(self), "dependency": self.dependency.value}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Family:
        """The inverse of `as_dict`."""
        return cls(**{**values, "dependency": Dependency(values["dependency"])})


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
