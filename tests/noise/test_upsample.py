from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nppr.errors import SpecError
from nppr.noise.family import KEYS_KERNEL, TORCH_KERNEL, UPSAMPLERS, Family
from nppr.noise.upsample import (
    COARSE_SCALE,
    Multiscale,
    Shape,
    Trainable,
    Upsampler,
    bicubic_matrix,
    keys_kernel,
    make_upsampler,
)

SIZES = [(8, 4), (32, 4), (28, 4), (9, 4), (7, 5), (64, 7), (5, 1), (6, 2), (10, 3)]
fine_and_coarse = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(
    lambda sizes: (max(sizes), min(sizes))
)


def keys_formula(t: float, a: float) -> float:
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


@pytest.mark.parametrize("a", [KEYS_KERNEL, TORCH_KERNEL, -1.0])
@given(t=st.floats(-3, 3))
def test_kernel_is_the_formula_of_keys(a: float, t: float) -> None:
    found = float(keys_kernel(torch.tensor(t, dtype=torch.float64), a))
    assert found == pytest.approx(keys_formula(t, a), abs=1e-12)


@pytest.mark.parametrize("a", [KEYS_KERNEL, TORCH_KERNEL])
@given(sizes=fine_and_coarse)
def test_matrix_sums_the_kernel_over_the_repeated_border(a: float, sizes: tuple[int, int]) -> None:
    fine, coarse = sizes
    expected = [[0.0] * coarse for _ in range(fine)]
    for i in range(fine):
        place = (i + 0.5) * coarse / fine - 0.5
        for j in range(math.floor(place) - 3, math.floor(place) + 5):
            expected[i][min(max(j, 0), coarse - 1)] += keys_formula(place - j, a)
    matrix = bicubic_matrix(fine, coarse, a)
    assert matrix.shape == (fine, coarse)
    assert torch.allclose(matrix, torch.tensor(expected), atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_the_parameter_of_torch_gives_the_interpolation_of_torch(size: tuple[int, int]) -> None:
    fine, coarse = size
    image = torch.randn(2, 3, coarse, 4, generator=torch.Generator().manual_seed(0))
    rows, columns = bicubic_matrix(fine, coarse, TORCH_KERNEL), bicubic_matrix(11, 4, TORCH_KERNEL)
    expected = F.interpolate(image, (fine, 11), mode="bicubic", align_corners=False)
    assert torch.allclose(rows @ image @ columns.T, expected, atol=1e-5)
    across = F.interpolate(image.mT, (11, fine), mode="bicubic", align_corners=False)
    assert torch.allclose(columns @ image.mT @ rows.T, across, atol=1e-5)


@given(sizes=fine_and_coarse, a=st.floats(-1.5, 0.5))
def test_rows_sum_to_one(sizes: tuple[int, int], a: float) -> None:
    assert torch.allclose(bicubic_matrix(*sizes, a).sum(1), torch.ones(sizes[0]), atol=1e-5)


@given(size=st.integers(1, 40), a=st.floats(-1.5, 0.5))
def test_equal_sizes_are_left_alone(size: int, a: float) -> None:
    assert torch.allclose(bicubic_matrix(size, size, a), torch.eye(size), atol=1e-6)


@pytest.mark.parametrize(("fine", "coarse"), [(32, 8), (28, 7), (45, 8)])
def test_keys_reproduces_ramps_and_parabolas_away_from_the_border(fine: int, coarse: int) -> None:
    places = (torch.arange(fine) + 0.5) * coarse / fine - 0.5
    inner = (places >= 1) & (places <= coarse - 2)
    assert int(inner.sum()) > 10
    grid = torch.arange(coarse).float()
    for powers in ((-1.0, 3.0, 0.0), (0.0, -2.0, 1.0)):
        coarse_signal, fine_signal = (
            powers[0] + powers[1] * t + powers[2] * t * t for t in (grid, places)
        )
        errors = {
            a: float(
                (bicubic_matrix(fine, coarse, a) @ coarse_signal - fine_signal)[inner].abs().max()
            )
            for a in (KEYS_KERNEL, TORCH_KERNEL)
        }
        assert errors[KEYS_KERNEL] < 1e-4 < errors[TORCH_KERNEL]


def upsampler(name: str, shape: Shape, **changes: Any) -> Upsampler:
    return make_upsampler(Family(upsampler=name, grid=4, **changes), shape)


SHAPES = [(1, 8, 8), (3, 8, 8), (3, 5, 9), (1, 12, 3), (1, 2, 3), (3, 1, 1)]


def random_latent(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", UPSAMPLERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_latents_of_any_batch_become_images(name: str, shape: tuple[int, int, int]) -> None:
    up = upsampler(name, shape)
    for batch in ((), (3,), (2, 5)):
        assert up(torch.zeros(*batch, up.latent_dim)).shape == (*batch, *shape)
    rows = random_latent(2, 3, up.latent_dim)
    assert torch.allclose(up(rows)[1, 2], up(rows[1, 2]), atol=1e-5)


@pytest.mark.parametrize("name", UPSAMPLERS)
@settings(max_examples=30)
@given(s=st.floats(-3, 3), t=st.floats(-3, 3), seed=st.integers(0, 99))
def test_upsamplers_are_linear(name: str, s: float, t: float, seed: int) -> None:
    up = upsampler(name, (3, 6, 9), kernel=TORCH_KERNEL)
    first, second = random_latent(2, up.latent_dim, seed=seed)
    together = up(s * first + t * second)
    assert torch.allclose(together, s * up(first) + t * up(second), atol=1e-4)


@pytest.mark.parametrize("name", UPSAMPLERS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 5, 9), (1, 2, 3)])
def test_no_latent_coordinate_is_without_effect(name: str, shape: tuple[int, int, int]) -> None:
    up = upsampler(name, shape)
    images = up(torch.eye(up.latent_dim)).flatten(1)
    assert bool((images.abs().amax(1) > 0.1).all())


@pytest.mark.parametrize("name", ["bicubic", "trainable", "multiscale"])
def test_a_constant_grid_is_a_constant_image_in_its_own_channel(name: str) -> None:
    up = upsampler(name, (3, 10, 7))
    latent = torch.zeros(up.latent_dim)
    latent[:16] = 2.0  # channel 0 of the (coarsest) grid
    image = up(latent)
    scale = COARSE_SCALE if name == "multiscale" else 1.0
    assert torch.allclose(image[0], torch.full((10, 7), 2.0 * scale), atol=1e-5)
    assert torch.equal(image[1:], torch.zeros(2, 10, 7))


def test_none_is_the_image_itself() -> None:
    latent = torch.arange(24.0)
    image = upsampler("none", (2, 3, 4))(latent)
    assert torch.equal(image, latent.view(2, 3, 4))


@pytest.mark.parametrize("kernel", [KEYS_KERNEL, TORCH_KERNEL])
def test_bicubic_acts_on_rows_and_on_columns(kernel: float) -> None:
    up = upsampler("bicubic", (3, 6, 9), kernel=kernel)
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
    assert upsampler("bicubic", shape).latent_dim == size


@pytest.mark.parametrize("shape", SHAPES)
def test_trainable_starts_as_bicubic(shape: tuple[int, int, int]) -> None:
    bicubic = upsampler("bicubic", shape)
    trainable = upsampler("trainable", shape)
    latent = random_latent(5, bicubic.latent_dim)
    assert trainable.latent_dim == bicubic.latent_dim
    assert torch.allclose(trainable(latent), bicubic(latent), atol=1e-6)


@pytest.mark.parametrize("latent_dim", [3, 16, 40])
def test_trainable_starts_with_the_first_coordinates_of_the_grid(latent_dim: int) -> None:
    bicubic = upsampler("bicubic", (1, 8, 8))
    trainable = upsampler("trainable", (1, 8, 8), latent_dim=latent_dim)
    latent = random_latent(latent_dim)
    grid = torch.zeros(16)
    grid[: min(latent_dim, 16)] = latent[:16]
    assert trainable.latent_dim == latent_dim
    assert torch.allclose(trainable(latent), bicubic(grid), atol=1e-6)


def test_trainable_may_start_at_random() -> None:
    torch.manual_seed(0)
    up = upsampler("trainable", (3, 32, 32), latent_dim=128, random_start=True)
    assert isinstance(up, Trainable)
    edge, weight = 128**-0.5, up.linear.weight.detach()
    assert float(weight.abs().max()) <= edge
    assert float(weight.std()) == pytest.approx(edge / 3**0.5, rel=0.05)
    assert bool((weight.abs().sum(0) > 0).all())  # no latent coordinate is left out


def test_trainable_maps_before_it_interpolates() -> None:
    up = upsampler("trainable", (1, 8, 8), latent_dim=2)
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
    up = upsampler("multiscale", shape)
    assert up.latent_dim == shape[0] * sum(math.prod(grid) for grid in grids)


def test_multiscale_is_the_scaled_sum_of_its_grids() -> None:
    up = upsampler("multiscale", (1, 8, 8))
    assert isinstance(up, Multiscale)
    latent = random_latent(80)
    coarse = upsampler("bicubic", (1, 8, 8))(latent[:16])
    fine = latent[16:].view(1, 8, 8)
    assert torch.allclose(up(latent), COARSE_SCALE * coarse + fine, atol=1e-5)
    with torch.no_grad():
        up.log_scales.copy_(torch.tensor([2.0, 0.5]).log())
    assert torch.allclose(up(latent), 2 * coarse + 0.5 * fine, atol=1e-5)


@pytest.mark.parametrize(("side", "grid"), [(1, 1), (28, 4), (32, 4), (33, 7), (224, 7)])
def test_grid_follows_the_image_unless_given(side: int, grid: int) -> None:
    shape = (1, side, side)
    assert make_upsampler(Family(upsampler="bicubic"), shape).latent_dim == grid**2
    assert (
        make_upsampler(Family(upsampler="bicubic", grid=5), shape).latent_dim == min(5, side) ** 2
    )


@pytest.mark.parametrize("name", [name for name in UPSAMPLERS if name != "trainable"])
def test_latent_dim_is_for_the_trainable_only(name: str) -> None:
    with pytest.raises(SpecError, match=r"`latent-dim` must be left out .* got 16.*trainable"):
        upsampler(name, (1, 8, 8), latent_dim=16)
