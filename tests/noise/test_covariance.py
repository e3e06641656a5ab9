from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, LowRankMultivariateNormal, MultivariateNormal

from nppr.errors import SpecError
from nppr.noise.covariance import (
    COVARIANCES,
    MOST_FULL,
    Covariance,
    Diagonal,
    Full,
    make_covariance,
    mix,
)
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency

NAMES = ["diag", "lowrank:1", "lowrank:3", "full"]
D, K, MIN_STD = 4, 3, 0.05


def shaped(name: str) -> Covariance:
    return make_covariance(name, D, MIN_STD)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def growths(inputs: int, seed: int = 1) -> Tensor:
    return 2 * torch.sigmoid(numbers(inputs, K, 1, seed=seed))


def some_weights(inputs: int, draws: int) -> Tensor:
    return torch.softmax(2 * numbers(inputs, draws, K, seed=2), -1)


def sigma(family: Covariance, raw: Tensor, growth: Tensor) -> Tensor:
    """The stated covariances `(..., D, D)`."""
    law = family.component(torch.zeros(*raw.shape[:-1], D), raw, growth)
    if isinstance(law, Independent):
        return torch.diag_embed(law.variance)
    assert isinstance(law, LowRankMultivariateNormal | MultivariateNormal)
    return law.covariance_matrix


@pytest.mark.parametrize(("name", "size"), [("diag", 4), ("lowrank:3", 16), ("full", 10)])
def test_size_counts_the_free_numbers(name: str, size: int) -> None:
    assert shaped(name).size == size
    assert shaped(name).start(1.0).shape == (size,)


@pytest.mark.parametrize("name", NAMES)
def test_exact_draws_have_the_stated_covariance(name: str) -> None:
    family = shaped(name)
    raw, growth = numbers(1, K, family.size), growths(1)
    for k in range(K):
        one = torch.eye(family.noise_size(1))[None]  # linear in the noise: A^T A is its covariance
        rows = one.shape[1]
        for chosen in (torch.full((1, rows), k), torch.full((1, 1), k)):
            drawn = family.exact(chosen, raw, growth, one)[0]
            assert torch.allclose(drawn.T @ drawn, sigma(family, raw, growth)[0, k], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_sample_covariance_of_exact_draws(name: str) -> None:
    family = shaped(name)
    raw, growth = numbers(1, 1, family.size), torch.full((1, 1, 1), 1.3)
    noise = numbers(1, 100_000, family.noise_size(1), seed=3)
    drawn = family.exact(torch.zeros(1, 1, dtype=torch.int64), raw, growth, noise)[0]
    stated = sigma(family, raw, growth)[0, 0]
    assert torch.allclose(drawn.mean(0), torch.zeros(D), atol=0.03)
    assert float((torch.cov(drawn.T) - stated).abs().max()) < 0.02 * float(stated.abs().max())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("raws", "grown"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_relaxed_draws_have_the_covariance_of_the_weighted_sum(
    name: str, raws: int, grown: int
) -> None:
    """`sum_k w_k L_k xi_k` with own noise for every component has `sum_k w_k^2 Sigma_k`."""
    family = shaped(name)
    raw, growth = numbers(raws, K, family.size), growths(grown)
    weights = some_weights(2, 1)
    size = family.noise_size(K)
    noise = torch.eye(size).expand(2, size, size)
    drawn = family.relaxed(weights.expand(2, size, K), raw, growth, noise)
    each = sigma(family, raw.expand(2, -1, -1), growth.expand(2, -1, -1))
    stated = (weights[:, 0, :, None, None].square() * each).sum(1)
    assert torch.allclose(drawn.mT @ drawn, stated, atol=1e-5)


@pytest.mark.parametrize("grown", [1, 5])
@pytest.mark.parametrize("raws", [1, 5])
@settings(max_examples=30)
@given(scale=st.floats(0.01, 20), seed=st.integers(0, 99))
def test_relaxed_std_is_its_formula(raws: int, grown: int, scale: float, seed: int) -> None:
    family = shaped("diag")
    raw, growth = scale * numbers(raws, K, D, seed=seed), growths(grown, seed=seed)
    weights = some_weights(5, 6)
    stds = family.std(raw, growth).expand(5, K, D)
    expected = (weights.square().unsqueeze(-1) * stds.square().unsqueeze(1)).sum(2).sqrt()
    assert torch.allclose(family.relaxed_std(weights, raw, growth), expected, rtol=1e-4)


@pytest.mark.parametrize("raws", [1, 2])
def test_one_noise_vector_has_the_law_of_one_for_each_component(raws: int) -> None:
    family, draws = shaped("diag"), 100_000
    raw, growth = numbers(raws, K, D), growths(2)
    weights = some_weights(2, 1).expand(2, draws, K)
    one = family.relaxed(weights, raw, growth, numbers(2, draws, D, seed=3))
    each = numbers(2, draws, K, D, seed=4) * family.std(raw, growth).expand(2, K, D).unsqueeze(1)
    many = (weights.unsqueeze(-1) * each).sum(2)
    assert torch.allclose(one.mean(1), many.mean(1), atol=0.02)
    assert torch.allclose(one.std(1), many.std(1), rtol=0.02)
    levels = torch.tensor([0.05, 0.25, 0.75, 0.95])
    expected = many.quantile(levels, 1)
    assert torch.allclose(one.quantile(levels, 1), expected, rtol=0.03, atol=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_relaxed_draws_of_one_certain_component_have_its_covariance(name: str) -> None:
    family = shaped(name)
    raw, growth = numbers(1, K, family.size), growths(1)
    size = family.noise_size(K)
    weights = torch.tensor([0.0, 1.0, 0.0]).expand(1, size, K)
    drawn = family.relaxed(weights, raw, growth, torch.eye(size)[None])[0]
    assert torch.allclose(drawn.T @ drawn, sigma(family, raw, growth)[0, 1], atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=50)
@given(
    value=st.floats(-1e4, 1e4, width=32),
    growth=st.floats(0, 2, width=32),
    min_std=st.floats(0.01, 10),
)
def test_no_std_is_below_the_least(name: str, value: float, growth: float, min_std: float) -> None:
    family = make_covariance(name, D, min_std)
    raw, grown = torch.full((1, 1, family.size), value), torch.full((1, 1, 1), growth)
    assert bool((family.std(raw, grown) >= min_std * (1 - 1e-6)).all())
    draws = family.noise_size(1)
    first = torch.zeros(1, 1, dtype=torch.int64)
    drawn = family.exact(first, raw, grown, torch.eye(draws)[None])[0]
    assert bool((drawn.norm(dim=0) >= min_std * (1 - 1e-5)).all())


@settings(max_examples=50)
@given(scale=st.floats(0, 100), seed=st.integers(0, 99))
def test_full_factor_is_lower_triangular_with_a_positive_diagonal(scale: float, seed: int) -> None:
    family = shaped("full")
    assert isinstance(family, Full)
    raw = scale * numbers(2, K, family.size, seed=seed)
    factor = family.factor(raw, growths(2))
    assert torch.equal(factor, factor.tril())
    assert bool((factor.diagonal(dim1=-2, dim2=-1) >= MIN_STD).all())
    assert torch.equal(factor[..., *torch.tril_indices(D, D, -1)], raw[..., D:])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("std", [0.1, 0.3679, 2.0])
def test_start_has_the_wanted_std(name: str, std: float) -> None:
    family = shaped(name)
    raw, one = family.start(std), torch.ones(1)
    assert torch.allclose(family.std(raw, one), torch.full((D,), std), rtol=1e-4)
    stds = sigma(family, raw[None, None], one[None, None])[0, 0].diagonal().sqrt()
    assert torch.allclose(stds, torch.full((D,), std), rtol=0.02)


def test_start_of_directions_is_not_a_saddle() -> None:
    assert bool((shaped("lowrank:3").start(1.0)[D:].abs() > 0).all())


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_number(name: str) -> None:
    family = shaped(name)
    raw = family.start(0.5).repeat(1, K, 1).requires_grad_()
    growth = growths(3).requires_grad_()
    noise = numbers(3, 7, family.noise_size(K))
    family.relaxed(some_weights(3, 7), raw, growth, noise).square().sum().backward()
    for gradient in (raw.grad, growth.grad):
        assert gradient is not None
        assert bool((gradient != 0).all())


@pytest.mark.parametrize("text", ["lowrank", "lowrank:", "lowrank:0", "lowrank:5", "lowrank:x"])
def test_bad_rank_is_named(text: str) -> None:
    with pytest.raises(SpecError, match="`covariance` lowrank must have a rank of 1 to 4"):
        shaped(text)


def test_full_is_not_for_large_latents() -> None:
    assert make_covariance("full", MOST_FULL, MIN_STD).latent_dim == MOST_FULL
    with pytest.raises(SpecError, match=rf"`covariance` full must .* got {MOST_FULL + 1}"):
        make_covariance("full", MOST_FULL + 1, MIN_STD)


@pytest.mark.parametrize("inputs", [1, 2])
def test_mix_is_the_weighted_sum(inputs: int) -> None:
    weights, values = some_weights(2, 5), numbers(inputs, K, 6)
    expected = torch.einsum("bsk,bkn->bsn", weights, values.expand(2, K, 6))
    assert torch.allclose(mix(weights, values), expected, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_along_directions_is_the_projected_covariance(name: str) -> None:
    family = shaped(name)
    raw, growth, directions = numbers(K, family.size), growths(1)[0], numbers(2, D, seed=5)
    stated = directions @ sigma(family, raw, growth) @ directions.T
    torch.testing.assert_close(family.along(directions, raw, growth), stated)


@pytest.mark.parametrize("name", ["diag", "full"])
def test_the_first_principal_direction_has_the_largest_variance(name: str) -> None:
    family = shaped(name)
    raw, growth = numbers(K, family.size), growths(1)[0]
    weights = torch.tensor([0.5, 0.3, 0.2])
    found = family.principal(weights, raw, growth, 2)
    assert found.shape == (2, D)
    mean = (weights[:, None, None] * sigma(family, raw, growth)).sum(0)
    variances = (found @ mean @ found.T).diagonal()
    expected = torch.linalg.eigvalsh(mean).flip(0)[:2]
    torch.testing.assert_close(variances, expected)


def test_low_rank_directions_come_before_coordinates() -> None:
    family = shaped("lowrank:1")
    raw = family.start(0.1)[None]
    raw[0, D:] = torch.tensor([3.0, 4.0, 0.0, 0.0])
    found = family.principal(torch.ones(1), raw, torch.ones(1, 1), 2)
    torch.testing.assert_close(found[0].abs(), torch.tensor([0.6, 0.8, 0.0, 0.0]))
    torch.testing.assert_close(found[1:], torch.eye(D)[[1, 0]])


def test_a_registered_covariance_is_one_like_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    class Round(Diagonal):
        usage = "round"

    monkeypatch.setitem(COVARIANCES, "round", Round)
    made = Distribution(Family(Dependency.INDEPENDENT, covariance="round"), (1, 2, 2), 2)
    assert isinstance(made.mixture.covariance, Round)
    with pytest.raises(SpecError, match="one of diag, full, lowrank:R, round, got 'rounds'"):
        Family(covariance="rounds")
