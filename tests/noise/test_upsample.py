from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nppr.distributions.bicubic import KEYS, TORCH, bicubic_matrix  # FIXME
from nppr.distributions.upsample import COARSE_SCALE, UPSAMPLERS, Multiscale, Trainable, upsampler  # FIXME
from nppr.errors import SpecError

SHAPES = [(1, 8, 8), (3, 8, 8), (3, 5, 9), (1, 12, 3), (1, 2, 3), (3, 1, 1)]


def random_latent(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", UPSAMPLERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_latents_of_any_batch_become_images(name: str, shape: tuple[int, int, int]) -> None:
    up = upsampler(name, shape, grid=4, kernel=KEYS)
    for batch in ((), (3,), (2, 5)):
        assert up(torch.zeros(*batch, up.latent_dim)).shape == (*batch, *shape)
    rows = random_latent(2, 3, up.latent_dim)
    assert torch.allclose(up(rows)[1, 2], up(rows[1, 2]), atol=1e-5)


@pytest.mark.parametrize("name", UPSAMPLERS)
@settings(deadline=None, max_examples=30)
@given(s=st.floats(-3, 3), t=st.floats(-3, 3), seed=st.integers(0, 99))
def test_upsamplers_are_linear(name: str, s: float, t: float, seed: int) -> None:
    up = upsampler(name, (3, 6, 9), grid=4, kernel=TORCH)
    first, second = random_latent(2, up.latent_dim, seed=seed)
    together = up(s * first + t * second)
    assert torch.allclose(together, s * up(first) + t * up(second), atol=1e-4)


@pytest.mark.parametrize("name", UPSAMPLERS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 9), (1, 2, 3)])
def test_no_latent_coordinate_is_without_effect(name: str, shape: tuple[int, int, int]) -> None:
    up = upsampler(name, shape, grid=4, kernel=KEYS)
    images = up(torch.eye(up.latent_dim)).flatten(1)
    assert bool((images.abs().amax(1) > 0.1).all())


@pytest.mark.parametrize("name", ["bicubic", "trainable", "multiscale"])
def test_a_constant_grid_is_a_constant_image_in_its_own_channel(name: str) -> None:
    up = upsampler(name, (3, 10, 7), grid=4, kernel=KEYS)
    latent = torch.zeros(up.latent_dim)
    latent[:16] = 2.0  # channel 0 of the (coarsest) grid
    image = up(latent)
    scale = COARSE_SCALE if name == "multiscale" else 1.0
    assert torch.allclose(image[0], torch.full((10, 7), 2.0 * scale), atol=1e-5)
    assert torch.equal(image[1:], torch.zeros(2, 10, 7))


def test_none_is_the_image_itself() -> None:
    latent = torch.arange(24.0)
    image = upsampler("none", (2, 3, 4), grid=9, kernel=KEYS)(latent)
    assert torch.equal(image, latent.view(2, 3, 4))


@pytest.mark.parametrize("kernel", [KEYS, TORCH])
def test_bicubic_acts_on_rows_and_on_columns(kernel: float) -> None:
    up = upsampler("bicubic", (3, 6, 9), grid=4, kernel=kernel)
    latent = random_latent(3, 4, 4)
    expected = torch.einsum(
        "hi,cij,wj->chw", bicubic_matrix(6, 4, kernel), latent, bicubic_matrix(9, 4, kernel)
    )
    assert torch.allclose(up(latent.flatten()), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "size"),
    [((3, 32, 32), 3 * 16), ((1, 2, 3), 6), ((1, 12, 3), 4 * 3), ((3, 1, 1), 3)],
)
def test_bicubic_grid_is_no_finer_than_the_image(shape: tuple[int, int, int], size: int) -> None:
    assert upsampler("bicubic", shape, grid=4, kernel=KEYS).latent_dim == size


@pytest.mark.parametrize("shape", SHAPES)
def test_trainable_starts_as_bicubic(shape: tuple[int, int, int]) -> None:
    bicubic = upsampler("bicubic", shape, grid=4, kernel=KEYS)
    trainable = upsampler("trainable", shape, grid=4, kernel=KEYS)
    latent = random_latent(5, bicubic.latent_dim)
    assert trainable.latent_dim == bicubic.latent_dim
    assert torch.allclose(trainable(latent), bicubic(latent), atol=1e-6)


@pytest.mark.parametrize("latent_dim", [3, 16, 40])
def test_trainable_starts_with_the_first_coordinates_of_the_grid(latent_dim: int) -> None:
    bicubic = upsampler("bicubic", (1, 8, 8), grid=4, kernel=KEYS)
    trainable = upsampler("trainable", (1, 8, 8), grid=4, kernel=KEYS, latent_dim=latent_dim)
    latent = random_latent(latent_dim)
    grid = torch.zeros(16)
    grid[: min(latent_dim, 16)] = latent[:16]
    assert trainable.latent_dim == latent_dim
    assert torch.allclose(trainable(latent), bicubic(grid), atol=1e-6)


def test_trainable_maps_before_it_interpolates() -> None:
    up = upsampler("trainable", (1, 8, 8), grid=4, kernel=KEYS, latent_dim=2)
    assert isinstance(up, Trainable)
    nn.init.normal_(up.linear.weight)
    latent = random_latent(2)
    assert torch.allclose(up(latent), up.bicubic(up.linear.weight @ latent), atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "grids"),
    [
        ((3, 32, 32), [(4, 4), (8, 8), (16, 16), (32, 32)]),
        ((1, 28, 28), [(4, 4), (8, 8), (16, 16), (28, 28)]),
        ((1, 4, 4), [(4, 4)]),
        ((1, 2, 3), [(2, 3)]),
        ((3, 5, 9), [(4, 4), (5, 8), (5, 9)]),
    ],
)
def test_multiscale_doubles_up_to_the_full_resolution(
    shape: tuple[int, int, int], grids: list[tuple[int, int]]
) -> None:
    up = upsampler("multiscale", shape, grid=4, kernel=KEYS)
    assert up.latent_dim == shape[0] * sum(math.prod(grid) for grid in grids)


def test_multiscale_is_the_scaled_sum_of_its_grids() -> None:
    up = upsampler("multiscale", (1, 8, 8), grid=4, kernel=KEYS)
    assert isinstance(up, Multiscale)
    latent = random_latent(80)
    coarse = upsampler("bicubic", (1, 8, 8), grid=4, kernel=KEYS)(latent[:16])
    fine = latent[16:].view(1, 8, 8)
    assert torch.allclose(up(latent), COARSE_SCALE * coarse + fine, atol=1e-5)
    with torch.no_grad():
        up.log_scales.copy_(torch.tensor([2.0, 0.5]).log())
    assert torch.allclose(up(latent), 2 * coarse + 0.5 * fine, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in UPSAMPLERS if name != "trainable"])
def test_latent_dim_is_for_the_trainable_only(name: str) -> None:
    with pytest.raises(SpecError, match=r"`latent-dim` must be left out .* got 16.*trainable"):
        upsampler(name, (1, 8, 8), grid=4, kernel=KEYS, latent_dim=16)
