from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from nppr.distributions.bicubic import KEYS, TORCH, bicubic_matrix, keys_kernel  # FIXME

SIZES = [(8, 4), (32, 4), (28, 4), (9, 4), (7, 5), (64, 7), (5, 1), (6, 2), (10, 3)]
fine_and_coarse = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(
    lambda sizes: (max(sizes), min(sizes))
)


def keys_formula(t: float, a: float) -> float:
    t = abs(t)
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a if t < 2 else 0.0


@pytest.mark.parametrize("a", [KEYS, TORCH, -1.0])
@given(t=st.floats(-3, 3))
def test_kernel_is_the_formula_of_keys(a: float, t: float) -> None:
    found = float(keys_kernel(torch.tensor(t, dtype=torch.float64), a))
    assert found == pytest.approx(keys_formula(t, a), abs=1e-12)


@pytest.mark.parametrize("a", [KEYS, TORCH])
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
    rows, columns = bicubic_matrix(fine, coarse, TORCH), bicubic_matrix(11, 4, TORCH)
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
            for a in (KEYS, TORCH)
        }
        assert errors[KEYS] < 1e-4 < errors[TORCH]
