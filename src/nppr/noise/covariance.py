"""Covariances of the components, as factors of free numbers.

diag       Sigma = diag(sigma^2)                  P = D
lowrank:r  Sigma = diag(sigma^2) + V V^T          P = D + D r
full       Sigma = L L^T, L lower triangular      P = D + D (D - 1) / 2

In all of them the first D numbers give the diagonal, `sigma = min_std + c softplus(raw)` with a growth
c of each component that may depend on the context: no latent standard deviation is below `min_std`.
A new covariance is a class here and a line in `COVARIANCES`.
Shapes: B inputs (1 where all share a component), K components, S draws, d directions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from nppr.errors import SpecError, unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributions import Distribution
else:

    class _Torch:
        """PyTorch, imported when it is first used: names of covariances are checked without it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(import_module("torch"), name)

    torch = _Torch()

MOST_FULL = 1024
"""Largest latent dimension of a full covariance, whose components then have half a million numbers."""


@dataclass(frozen=True)
class Covariance(ABC):
    """A family of covariances of D dimensions with standard deviations of at least `min_std`.

    `usage` is its name on a command line, with `:R` where it takes a rank.
    """

    latent_dim: int
    min_std: float
    rank: int = 0
    usage: ClassVar[str]

    @property
    @abstractmethod
    def size(self) -> int:
        """P, the free numbers of one component."""

    @abstractmethod
    def noise_size(self, components: int) -> int:
        """Standard normal numbers that a relaxed draw from this many components takes."""

    @abstractmethod
    def relaxed(self, weights: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        """Centred relaxed draws `(B, S, D)`.

        Weights `(B, S, K)`, raw `(B|1, K, P)`, growth `(B|1, K, 1)`, noise `(B, S, noise_size)`.
        """

    @abstractmethod
    def exact(self, chosen: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        """Centred draws of chosen components `(B, S|1)`, `(B, S, D)`."""

    @abstractmethod
    def component(self, means: Tensor, raw: Tensor, growth: Tensor) -> Distribution:
        """The components as distributions over R^D with batch shape `(..., K)`."""

    @abstractmethod
    def along(self, directions: Tensor, raw: Tensor, growth: Tensor) -> Tensor:
        """`V Sigma_k V^T` `(K, d, d)` with directions V `(d, D)`, raw `(K, P)`, growth `(K, 1)`."""

    @abstractmethod
    def principal(self, weights: Tensor, raw: Tensor, growth: Tensor, most: int) -> Tensor:
        """Directions `(., D)` of large variance under `sum_k w_k Sigma_k`, the largest first.

        Weights `(K,)`, raw `(K, P)`, growth `(K, 1)`; `most` of them are enough.
        """

    def start(self, std: float) -> Tensor:
        """Raw numbers `(P,)` of independent coordinates with this standard deviation."""
        excess = max(std - self.min_std, 1e-3)
        raw = torch.zeros(self.size)
        raw[: self.latent_dim] = excess + math.log(-math.expm1(-excess))
        return raw

    def std(self, raw: Tensor, growth: Tensor) -> Tensor:
        """The diagonal `(..., D)` of the factor."""
        return self.min_std + growth * self._softplus(raw)

    def exact_std(self, chosen: Tensor, raw: Tensor, growth: Tensor) -> Tensor:
        """The diagonals `(B, S|1, D)` of chosen components, whose softplus is taken once each."""
        return self.min_std + choose(growth, chosen) * choose(self._softplus(raw), chosen)

    def relaxed_std(self, weights: Tensor, raw: Tensor, growth: Tensor) -> Tensor:
        """`sqrt(sum_k w_k^2 sigma_k^2)`, `(B, S, D)`.

        With a = softplus(raw), shared by all inputs, `sigma^2 = m^2 + 2 m c a + c^2 a^2` and no
        product of inputs and components is ever as large as an image.
        """
        squares = weights.square()
        if len(raw) > 1 or len(growth) == 1:
            return mix(squares, self.std(raw, growth).square()).sqrt()
        a = self._softplus(raw)
        grown = growth.transpose(-1, -2)  # (B, 1, K)
        shares = torch.cat([squares * (2 * self.min_std * grown), squares * grown.square()], -1)
        moved = mix(shares, torch.cat([a, a.square()], -2))
        return (moved + self.min_std**2 * squares.sum(-1, keepdim=True)).sqrt()

    def _softplus(self, raw: Tensor) -> Tensor:
        return torch.nn.functional.softplus(raw[..., : self.latent_dim])


@dataclass(frozen=True)
class Diagonal(Covariance):
    """Independent coordinates.

    A relaxed draw needs one noise vector, not K: given the relaxed weights w,
    `sum_k w_k sigma_k xi_k` has the law N(0, sum_k w_k^2 sigma_k^2).
    """

    usage = "diag"

    @property
    def size(self) -> int:
        return self.latent_dim

    def noise_size(self, components: int) -> int:
        return self.latent_dim

    def relaxed(self, weights: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        return self.relaxed_std(weights, raw, growth) * noise

    def exact(self, chosen: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        return self.exact_std(chosen, raw, growth) * noise

    def component(self, means: Tensor, raw: Tensor, growth: Tensor) -> Distribution:
        distributions = torch.distributions
        return distributions.Independent(distributions.Normal(means, self.std(raw, growth)), 1)

    def along(self, directions: Tensor, raw: Tensor, growth: Tensor) -> Tensor:
        return (directions * self.std(raw, growth).square().unsqueeze(1)) @ directions.T

    def principal(self, weights: Tensor, raw: Tensor, growth: Tensor, most: int) -> Tensor:
        return _largest_axes(weights @ self.std(raw, growth).square(), most)


@dataclass(frozen=True)
class LowRank(Diagonal):
    """A diagonal and r directions in which coordinates move together."""

    usage = "lowrank:R"

    @property
    def size(self) -> int:
        return self.latent_dim * (1 + self.rank)

    def noise_size(self, components: int) -> int:
        return self.latent_dim + components * self.rank

    def relaxed(self, weights: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        own, shared = noise[..., : self.latent_dim], noise[..., self.latent_dim :]
        own = super().relaxed(weights, raw, growth, own)
        shared = weights.unsqueeze(-1) * shared.unflatten(-1, (weights.shape[-1], self.rank))
        directions = self._directions(raw).expand(len(noise), -1, -1, -1)
        moved: Tensor = torch.einsum("bskr,bkdr->bsd", shared, directions)
        return own + moved

    def exact(self, chosen: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        own, shared = noise[..., : self.latent_dim], noise[..., self.latent_dim :]
        directions = self._directions(choose(raw, chosen))
        moved: Tensor = (directions @ shared[..., : self.rank].unsqueeze(-1)).squeeze(-1)
        return super().exact(chosen, raw, growth, own) + moved

    def component(self, means: Tensor, raw: Tensor, growth: Tensor) -> Distribution:
        return torch.distributions.LowRankMultivariateNormal(
            means, self._directions(raw), self.std(raw, growth).square()
        )

    def along(self, directions: Tensor, raw: Tensor, growth: Tensor) -> Tensor:
        factor = directions @ self._directions(raw)
        return factor @ factor.mT + super().along(directions, raw, growth)

    def principal(self, weights: Tensor, raw: Tensor, growth: Tensor, most: int) -> Tensor:
        """The shared directions first, then coordinates."""
        factor = self._directions(raw)
        variances = factor.square().sum(-1) + self.std(raw, growth).square()
        columns = (factor * weights.sqrt()[:, None, None]).permute(1, 0, 2).flatten(1)
        shared = torch.linalg.svd(columns, full_matrices=False)[0].T
        return torch.cat([shared, _largest_axes(weights @ variances, most)])

    def start(self, std: float) -> Tensor:
        """Directions that are not all zero, where their gradient would be zero too."""
        raw = super().start(std)
        size = raw.numel() - self.latent_dim
        waves = torch.cos(torch.arange(size, dtype=torch.float32) * 2.399963)
        raw[self.latent_dim :] = 0.1 * std / math.sqrt(self.rank) * waves
        return raw

    def _directions(self, raw: Tensor) -> Tensor:
        """V, `(..., D, r)`."""
        return raw[..., self.latent_dim :].reshape(*raw.shape[:-1], self.latent_dim, self.rank)


@dataclass(frozen=True)
class Full(Covariance):
    """Any covariance, as a Cholesky factor with a positive diagonal."""

    usage = "full"

    def __post_init__(self) -> None:
        if self.latent_dim > MOST_FULL:
            raise SpecError(
                f"`covariance` full must have at most {MOST_FULL} latent dimensions,"
                f" got {self.latent_dim}. Choose diag or lowrank:8, or a coarser grid with"
                " --upsampler bicubic."
            )

    @property
    def size(self) -> int:
        return self.latent_dim * (self.latent_dim + 1) // 2

    def noise_size(self, components: int) -> int:
        return components * self.latent_dim

    def relaxed(self, weights: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        each = noise.unflatten(-1, (weights.shape[-1], self.latent_dim)) * weights.unsqueeze(-1)
        factor = self.factor(raw, growth)
        shared = len(factor) == 1
        rule = "bske,kde->bsd" if shared else "bske,bkde->bsd"
        drawn: Tensor = torch.einsum(rule, each, factor[0] if shared else factor)
        return drawn

    def exact(self, chosen: Tensor, raw: Tensor, growth: Tensor, noise: Tensor) -> Tensor:
        factor = self.factor(choose(raw, chosen), choose(growth, chosen))
        drawn: Tensor = factor @ noise[..., : self.latent_dim].unsqueeze(-1)
        return drawn.squeeze(-1)

    def component(self, means: Tensor, raw: Tensor, growth: Tensor) -> Distribution:
        return torch.distributions.MultivariateNormal(means, scale_tril=self.factor(raw, growth))

    def along(self, directions: Tensor, raw: Tensor, growth: Tensor) -> Tensor:
        factor = directions @ self.factor(raw, growth)
        return factor @ factor.mT

    def principal(self, weights: Tensor, raw: Tensor, growth: Tensor, most: int) -> Tensor:
        factor = self.factor(raw, growth)
        mean = torch.einsum("k,kde->de", weights, factor @ factor.mT)
        largest: Tensor = torch.linalg.eigh(mean).eigenvectors.T.flip(0)[:most]
        return largest

    def factor(self, raw: Tensor, growth: Tensor) -> Tensor:
        """The Cholesky factor `(..., D, D)`."""
        rows, columns = torch.tril_indices(self.latent_dim, self.latent_dim, -1, device=raw.device)
        factor = torch.diag_embed(self.std(raw, growth))
        factor[..., rows, columns] = raw[..., self.latent_dim :]
        return factor


COVARIANCES: dict[str, type[Covariance]] = {"diag": Diagonal, "lowrank": LowRank, "full": Full}


def check_covariance(text: str) -> None:
    """Raise `SpecError` unless the text names a covariance, such as `diag` or `lowrank:8`."""
    name, colon, _ = str(text).partition(":")
    if name not in COVARIANCES or (colon and ":" not in COVARIANCES[name].usage):
        raise unknown("covariance", str(text), [each.usage for each in COVARIANCES.values()])


def make_covariance(text: str, latent_dim: int, min_std: float) -> Covariance:
    """The covariance of this name in D dimensions."""
    name, _, rank = text.partition(":")
    kind = COVARIANCES[name]
    if ":" not in kind.usage:
        return kind(latent_dim, min_std)
    if not (rank.isascii() and rank.isdigit() and 1 <= int(rank) <= latent_dim):
        raise SpecError(
            f"`covariance` {name} must have a rank of 1 to {latent_dim}, got {text!r}."
            f" Example: {name}:8"
        )
    return kind(latent_dim, min_std, int(rank))


def choose(values: Tensor, chosen: Tensor) -> Tensor:
    """Rows of the chosen components: `(B|1, K, N)`, `(B, S)` -> `(B, S, N)`."""
    if len(values) == 1:
        return values[0][chosen]
    rows = torch.arange(len(chosen), device=chosen.device)
    return values[rows[:, None], chosen]


def mix(weights: Tensor, values: Tensor) -> Tensor:
    """`sum_k w_k v_k`: weights `(B, S, K)`, values `(B|1, K, N)` -> `(B, S, N)`."""
    return weights @ (values[0] if len(values) == 1 else values)


def _largest_axes(variances: Tensor, most: int) -> Tensor:
    """Unit vectors `(., D)` of the coordinates with the largest variances `(D,)`."""
    axes = variances.argsort(descending=True, stable=True)[:most]
    return torch.nn.functional.one_hot(axes, len(variances)).to(variances)
