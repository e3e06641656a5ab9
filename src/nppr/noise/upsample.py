"""Up-samplers: maps U from the latent space to images (C, H, W).

white       a latent vector of C numbers at every position
stationary  a latent vector at every position, then a small network of convolutions

Noise of any structure has one latent vector in R^D and a linear map:

none        D = C H W, the latent vector is the image
bicubic     D = C g^2, a coarse grid and fixed bicubic interpolation
trainable   any D, a linear map to the coarse grid before the interpolation
multiscale  a sum of bicubic grids 4, 8, 16, ... up to full resolution, each with a learned scale

Bicubic interpolation is a fixed matrix. With Keys' kernel W_a (Keys, 1981), n coarse and N fine
pixels, and c_i = (i + 1/2) n/N - 1/2 the place of fine pixel i on the coarse grid, the fine value is
`sum_j W_a(c_i - j) coarse[clamp(j)]` over the four nearest j. In two dimensions the matrix acts on
rows and on columns.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.noise.dictionary import Pattern
from nppr.noise.family import Family
from nppr.noise.structures import STRUCTURES, choose_length
from nppr.system.registry import load_object

Shape = tuple[int, int, int]

COARSEST = 4
"""Side of the coarsest grid of `multiscale`."""

COARSE_SCALE = 0.2
"""Scale of the coarser grids of `multiscale` at the start."""

CORNER = 1.5
"""Latent means of white noise at the start: tanh is 0.9 there."""

SCORED_SCALE = 0.1
"""Scale of a step in the linear filter of stationary noise, in a search without gradients."""

LATENT_CHANNELS, HIDDEN_CHANNELS, GAIN = 4, 8, 3.0
"""White channels that stationary noise is made from, channels between, and the factor before tanh."""


def keys_kernel(distance: Tensor, a: float) -> Tensor:
    """W_a of a distance in coarse pixels: a piecewise cubic that vanishes from 2 on."""
    t = distance.abs()
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = a * (((t - 5) * t + 8) * t - 4)
    return torch.where(t <= 1, near, torch.where(t < 2, far, torch.zeros_like(t)))


def bicubic_matrix(fine: int, coarse: int, a: float) -> Tensor:
    """The matrix `(fine, coarse)` of interpolation; its rows sum to 1, the border is repeated."""
    places = (torch.arange(fine, dtype=torch.float64) + 0.5) * coarse / fine - 0.5
    matrix = torch.zeros(fine, coarse, dtype=torch.float64)
    for offset in (-1, 0, 1, 2):
        nearest = places.floor() + offset
        columns = nearest.clamp(0, coarse - 1).long()
        weights = keys_kernel(places - nearest, a)
        matrix.scatter_add_(1, columns[:, None], weights[:, None])
    return matrix.float()


class Upsampler(nn.Module):
    """A map `(..., P D) -> (..., C, H, W)` of P latent vectors, which are drawn independently.

    P is 1 for noise that may be one pattern; white and stationary noise has a latent vector for each of
    its H W positions.
    """

    def __init__(self, shape: Shape, latent_dim: int, positions: int = 1) -> None:
        super().__init__()
        self.shape = shape
        self.latent_dim = latent_dim
        self.positions = positions

    @abstractmethod
    def forward(self, latent: Tensor) -> Tensor:
        """Return perturbations `(..., C, H, W)` of latent vectors `(..., P D)`."""

    def start_means(self, means: Tensor) -> Tensor:
        """Return the latent means `(K, D)` that a fit starts from, given random ones."""
        return means

    def scored_parameters(self) -> list[tuple[Tensor, float]]:
        """Return the parameters that a search without gradients moves, with the scale of a step."""
        return []


class Identity(Upsampler):
    """The latent vector is the image."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, math.prod(shape))

    def forward(self, latent: Tensor) -> Tensor:
        return latent.reshape(*latent.shape[:-1], *self.shape)


class Bicubic(Upsampler):
    """A coarse grid of g x g (fewer where the image is smaller), interpolated."""

    rows: Tensor
    columns: Tensor

    def __init__(self, shape: Shape, grid: int, kernel: float) -> None:
        channels, height, width = shape
        coarse = (channels, min(grid, height), min(grid, width))
        super().__init__(shape, math.prod(coarse))
        self.grid = coarse
        rows = bicubic_matrix(height, coarse[1], kernel)
        columns = bicubic_matrix(width, coarse[2], kernel).T.contiguous()
        self.register_buffer("rows", rows, persistent=False)
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, latent: Tensor) -> Tensor:
        return self.rows @ latent.reshape(*latent.shape[:-1], *self.grid) @ self.columns


class Trainable(Upsampler):
    """A linear map to the coarse grid, then bicubic.

    The map starts as (a cut of) the identity or, with `random_start`, as any linear layer.
    """

    def __init__(
        self,
        shape: Shape,
        grid: int,
        kernel: float,
        latent_dim: int | None,
        random_start: bool = False,
    ) -> None:
        bicubic = Bicubic(shape, grid, kernel)
        super().__init__(shape, latent_dim or bicubic.latent_dim)
        self.bicubic = bicubic
        self.linear = nn.Linear(self.latent_dim, bicubic.latent_dim)
        if not random_start:
            nn.init.eye_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)

    def forward(self, latent: Tensor) -> Tensor:
        image: Tensor = self.bicubic(self.linear(latent))
        return image


class Multiscale(Upsampler):
    """`sum_g exp(a_g) bicubic_g(e_g)`: grids double from 4 up to the full resolution.

    The full resolution starts with scale 1, the coarser grids with less: each of their coordinates
    moves many pixels at once, and together they would fill the budget before the search begins.
    """

    def __init__(self, shape: Shape, kernel: float) -> None:
        sides = [COARSEST]
        while sides[-1] < max(shape[1:]):
            sides.append(min(2 * sides[-1], max(shape[1:])))
        levels = [Bicubic(shape, side, kernel) for side in sides]
        super().__init__(shape, sum(level.latent_dim for level in levels))
        self.levels = nn.ModuleList(levels)
        self.sizes = [level.latent_dim for level in levels]
        starts = torch.full((len(levels),), COARSE_SCALE).log()
        starts[-1] = 0.0
        self.log_scales = nn.Parameter(starts)

    def forward(self, latent: Tensor) -> Tensor:
        grids = zip(
            self.log_scales.exp(), self.levels, latent.split(self.sizes, dim=-1), strict=True
        )
        return torch.stack([scale * level(coarse) for scale, level, coarse in grids]).sum(0)


class White(Upsampler):
    """The latent vector of a position is the values of its channels.

    The components of the mixture start at corners of the cube of the channels: in linf the worst law of
    a pixel has its mass there.
    """

    def __init__(self, family: Family, shape: Shape) -> None:
        super().__init__(shape, shape[0], positions=shape[1] * shape[2])

    def forward(self, latent: Tensor) -> Tensor:
        values: Tensor = latent.unflatten(-1, (*self.shape[1:], self.shape[0]))
        return values.movedim(-1, -3)

    def start_means(self, means: Tensor) -> Tensor:
        """Return opposite corners in turn: all of them, or random ones if there are too many."""
        count, channels = means.shape
        if count != 2**channels:
            corners = means.sign()
            corners[1::2] = -corners[: len(corners[1::2]) * 2 : 2]
            return CORNER * corners
        bits = torch.arange(count)[:, None] >> torch.arange(channels)
        return CORNER * (2.0 * (bits % 2) - 1.0)


class Stationary(Upsampler):
    """Two convolutions of white noise beside a linear one, with circular padding.

    A value depends on the latent vectors of a window of `length` pixels per side, so that values at
    least `length` apart are independent. A shift of the latent noise, whose law is the same everywhere,
    shifts the image.
    """

    def __init__(self, family: Family, shape: Shape) -> None:
        channels, height, width = shape
        super().__init__(shape, LATENT_CHANNELS, positions=height * width)
        self.length = choose_length(shape, family.correlation_length)
        outer = self.length // 2 + 1
        inner = self.length + 1 - outer
        self.inner = self._convolution(LATENT_CHANNELS, HIDDEN_CHANNELS, inner)
        self.outer = self._convolution(HIDDEN_CHANNELS, channels, outer)
        self.linear = self._convolution(LATENT_CHANNELS, channels, inner)

    def forward(self, latent: Tensor) -> Tensor:
        field = latent.reshape(-1, *self.shape[1:], self.latent_dim).movedim(-1, -3)
        hidden = torch.relu(self._convolve(self.inner, field))
        values = self._convolve(self.outer, hidden) + self._convolve(self.linear, field)
        image: Tensor = (GAIN * values).unflatten(0, latent.shape[:-1])
        return image

    def start_means(self, means: Tensor) -> Tensor:
        """Return zeros: the noise has no preferred sign."""
        return torch.zeros_like(means)

    def scored_parameters(self) -> list[tuple[Tensor, float]]:
        """Return the linear filter; the rest has too many parameters."""
        return [(self.linear.weight, SCORED_SCALE)]

    @torch.no_grad()
    def tune(self, wave: Pattern, gain: float) -> None:
        """Make noise of one band: a linear filter of size `gain` that passes this wave."""
        for each in self.parameters():
            each.zero_()
        _, height, width = self.shape
        sides = self.linear.weight.shape[-2:]
        y, x = (torch.arange(side) - (side - 1) / 2 for side in sides)
        y, x = 2 * math.pi * wave.rows / height * y[:, None], 2 * math.pi * wave.columns / width * x
        parts = (
            [torch.cos(y) * torch.cos(x)] if wave.product else [torch.cos(y + x), torch.sin(y + x)]
        )
        colour = torch.tensor(wave.colour).float()[:, None, None]
        for channel, part in enumerate(parts):
            length = part.norm().clamp_min(1e-3)
            self.linear.weight[:, channel] = gain * colour * part / length

    def _convolution(self, inputs: int, outputs: int, side: int) -> nn.Conv2d:
        _, height, width = self.shape
        return nn.Conv2d(inputs, outputs, (min(side, height), min(side, width)))

    @staticmethod
    def _convolve(convolution: nn.Conv2d, field: Tensor) -> Tensor:
        rows, columns = (side - 1 for side in convolution.kernel_size)
        padding = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
        padded: Tensor = convolution(F.pad(field, padding, mode="circular"))
        return padded


def make_upsampler(family: Family, shape: Shape) -> Upsampler:
    """Return the up-sampler of a family for images of `shape` (C, H, W), made by its structure."""
    made: Upsampler = load_object(STRUCTURES[family.structure].sampler)(family, shape)
    return made


def make_free(family: Family, shape: Shape) -> Upsampler:
    """Return the up-sampler of noise that is not restricted, which `family.upsampler` names."""
    name, kernel = family.upsampler, family.kernel
    if name == "none":
        return Identity(shape)
    if name == "multiscale":
        return Multiscale(shape, kernel)
    grid = family.grid or (4 if max(shape[1:]) <= 32 else 7)
    if name == "bicubic":
        return Bicubic(shape, grid, kernel)
    return Trainable(shape, grid, kernel, family.latent_dim, family.random_start)
