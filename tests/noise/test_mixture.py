from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from helpers import FAMILIES
from nppr.noise.covariance import make_covariance
from nppr.noise.family import Family, Temperatures
from nppr.noise.mixture import Context, Given, Mixture
from nppr.noise.rungs import Dependency

CLASSES, FEATURES, D = 5, 6, 3
LABELS = torch.tensor([0, 3, 4, 3])


def family(dependency: Dependency = Dependency.JOINT, **changes: object) -> Family:
    small = Family(dependency, components=3, hidden_dim=8, label_dim=4, upsampler="trainable")
    return small.with_(**changes)


def mixture(dependency: Dependency = Dependency.JOINT, **changes: object) -> Mixture:
    torch.manual_seed(0)
    chosen = family(dependency, **changes)
    shaped = make_covariance(chosen.covariance, D, chosen.min_std)
    return Mixture(chosen, shaped, CLASSES, FEATURES).requires_grad_(False)


def shaken(dependency: Dependency = Dependency.JOINT, **changes: object) -> Mixture:
    """A mixture whose heads see something."""
    made = mixture(dependency, **changes)
    for value in made.parameters():
        value.normal_()
    return made


def context(labels: Tensor = LABELS, seed: int = 0) -> Context:
    generator = torch.Generator().manual_seed(seed)
    return Context(labels, torch.randn(len(labels), FEATURES, generator=generator))


def one_dimension(weights: list[float], means: list[float], stds: list[float]) -> Given:
    raw = (torch.tensor(stds) - 0.05).expm1().log()
    return Given(
        torch.tensor([weights]).log(),
        torch.tensor(means).view(1, -1, 1),
        raw.view(1, -1, 1),
        torch.ones(1, len(weights), 1),
        make_covariance("diag", 1, 0.05),
    )


def of(given: Given) -> tuple[Tensor, ...]:
    return given.log_weights, given.means, given.raw, given.growth


@pytest.mark.parametrize("dependency", FAMILIES)
@pytest.mark.parametrize("wide_heads", [False, True])
def test_heads_ignore_the_context_at_the_start(dependency: Dependency, wide_heads: bool) -> None:
    made = mixture(dependency, wide_heads=wide_heads)
    given = made(context())
    free = (torch.full((3,), 1 / 3).log(), made.means, made.raw, torch.ones(3, 1))
    for value, expected in zip(of(given), free, strict=True):
        assert torch.equal(value, expected.expand_as(value))


@pytest.mark.parametrize("dependency", FAMILIES)
@pytest.mark.parametrize("label_only", [False, True])
@pytest.mark.parametrize("wide_heads", [False, True])
def test_weights_and_components_see_what_the_table_says(
    dependency: Dependency, label_only: bool, wide_heads: bool
) -> None:
    made = shaken(dependency, label_only=label_only, wide_heads=wide_heads)
    base = made(context())
    relabelled = made(context(torch.tensor([1, 1, 2, 0])))
    elsewhere = made(context(seed=1))
    by_features = dependency.sees_input and not (dependency.sees_label and label_only)
    assert torch.equal(base.log_weights, relabelled.log_weights) != dependency.sees_label
    assert torch.equal(base.log_weights, elsewhere.log_weights) != by_features
    assert torch.equal(base.means, elsewhere.means) != dependency.sees_input
    spreads = [torch.cat([g.raw.flatten(), g.growth.flatten()]) for g in (base, elsewhere)]
    assert torch.equal(*spreads) != dependency.sees_input
    for name in ("means", "raw", "growth"):
        assert torch.equal(getattr(base, name), getattr(relabelled, name))


def test_weights_sum_to_one_and_shapes_are_kept_small() -> None:
    for dependency in FAMILIES:
        given = shaken(dependency)(context())
        weight_rows = 1 if dependency is Dependency.INDEPENDENT else 4
        component_rows = 4 if dependency.sees_input else 1
        assert given.log_weights.shape == (weight_rows, 3)
        assert given.means.shape == (component_rows, 3, D)
        assert torch.allclose(given.log_weights.exp().sum(-1), torch.ones(weight_rows))


def test_growth_lies_between_zero_and_two() -> None:
    growth = shaken()(context()).growth
    assert bool(((growth > 0) & (growth < 2)).all())
    assert float(growth.std()) > 0


def test_components_are_chosen_as_often_as_their_weights() -> None:
    weights = torch.tensor([[0.1, 0.6, 0.3], [0.7, 0.05, 0.25]])
    given = replace(one_dimension([1.0] * 3, [0.0] * 3, [1.0] * 3), log_weights=weights.log())
    uniform = torch.rand(2, 100_000, generator=torch.Generator().manual_seed(0))
    chosen = given.choose(uniform)
    fractions = torch.stack([row.bincount(minlength=3) / 100_000 for row in chosen])
    assert torch.allclose(fractions, weights, atol=0.006)
    shared = replace(given, log_weights=weights[:1].log()).choose(uniform)
    assert torch.equal(shared[0], chosen[0])
    assert torch.equal(given.choose(torch.tensor([[0.0], [0.0]])), torch.zeros(2, 1).long())
    last = given.choose(torch.full((2, 1), 1 - 2.0**-24))
    assert torch.equal(last, torch.full((2, 1), 2))


def test_a_component_without_weight_is_never_chosen() -> None:
    given = one_dimension([0.0, 0.5, 0.5, 0.0], [0.0] * 4, [1.0] * 4)
    uniform = torch.tensor([[0.0, 0.25, 0.5, 0.75, 1 - 2.0**-24]])
    assert given.choose(uniform).tolist() == [[1, 1, 2, 2, 2]]


def test_the_length_of_a_label_embedding_does_not_matter() -> None:
    made = shaken(Dependency.LABEL)
    before = made(context()).log_weights
    made.embedding.weight.mul_(7)
    assert torch.allclose(made(context()).log_weights, before, atol=1e-5)


def test_exact_draws_come_from_the_chosen_component() -> None:
    given = shaken(Dependency.INPUT)(context())
    chosen = torch.tensor([[0, 1], [2, 2], [1, 0], [0, 0]])
    drawn = given.exact(chosen, torch.ones(4, 2, D))
    stds = given.covariance.std(given.raw, given.growth).expand(4, 3, D)
    for b in range(4):
        for s in range(2):
            k = int(chosen[b, s])
            assert torch.allclose(drawn[b, s], given.means[b, k] + stds[b, k], atol=1e-5)


def test_relaxed_draws_near_exact_ones_as_the_temperature_falls() -> None:
    given = one_dimension([0.1, 0.2, 0.7], [-3.0, -2.0, 1.0], [0.5, 0.3, 0.3])
    places = torch.linspace(-8, 8, 20_001)
    law = Normal(torch.tensor([-3.0, -2.0, 1.0]), torch.tensor([0.5, 0.3, 0.3]))
    density = law.log_prob(places[:, None]).exp() @ torch.tensor([0.1, 0.2, 0.7])
    expected = float(torch.trapezoid(density * places.tanh(), places))
    generator = torch.Generator().manual_seed(0)
    gumbel = torch.rand(1, 200_000, 3, generator=generator)
    noise = torch.randn(1, 200_000, 1, generator=generator)
    gaps = [
        abs(float(given.relaxed(gumbel, noise, tau).tanh().mean()) - expected)
        for tau in (1.0, 0.3, 0.03)
    ]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]
    assert gaps[2] < 0.01
    chosen = given.choose(gumbel[..., 0])
    assert float(given.exact(chosen, noise).tanh().mean()) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("name", ["diag", "lowrank:2", "full"])
def test_relaxed_draws_of_equal_components_are_less_spread_but_centred(name: str) -> None:
    made = mixture(Dependency.INDEPENDENT, components=4, covariance=name)
    made.means.copy_(made.means[:1].clone().expand(4, D))
    given = made(context(LABELS[:1]))
    generator = torch.Generator().manual_seed(0)
    gumbel = torch.rand(1, 50_000, 4, generator=generator)
    noise = torch.randn(1, 50_000, made.covariance.noise_size(4), generator=generator)
    stds = []
    for tau in (1.0, 0.01):
        drawn = given.relaxed(gumbel, noise, tau)[0]
        assert torch.allclose(drawn.mean(0), made.means[0], atol=0.01)
        stds.append(drawn.std(0))
    assert bool((stds[0] < 0.9 * stds[1]).all())
    assert torch.allclose(stds[1], torch.full((D,), math.exp(-1)), rtol=0.03)


def test_relaxed_draws_are_finite_at_the_ends_of_the_uniform_numbers() -> None:
    given = one_dimension([0.5, 0.5], [-1.0, 1.0], [1.0, 1.0])
    gumbel = torch.tensor([[[0.0, 0.5], [1 - 2.0**-24, 0.0], [0.0, 0.0], [1.0, 1.0]]])
    for tau in (1.0, 0.01):
        assert bool(torch.isfinite(given.relaxed(gumbel, torch.zeros(1, 4, 1), tau)).all())


@pytest.mark.parametrize(("wide_heads", "hidden_dim"), [(False, 2), (False, 8), (True, 2)])
def test_features_move_means_as_stated(wide_heads: bool, hidden_dim: int) -> None:
    made = shaken(Dependency.INPUT, wide_heads=wide_heads, hidden_dim=hidden_dim)
    seen = made.shared(context().features)
    moved = made.input_means(seen).unflatten(-1, (3, -1))
    shared = not wide_heads and hidden_dim < D
    assert hasattr(made, "basis") is shared
    expected = made.means + (moved @ made.basis if shared else moved)
    given = made(context())
    assert torch.allclose(given.means, expected, rtol=1e-4, atol=1e-4)
    weights = torch.eye(3).expand(4, 3, 3)
    zeros = torch.zeros(4, 3, given.covariance.noise_size(3))
    certain = replace(given, log_weights=torch.zeros(1, 3))
    sharp = certain.relaxed(weights.clamp(1e-30, 1 - 2.0**-24), zeros, 0.01)
    assert torch.allclose(sharp, given.means, rtol=1e-3, atol=1e-3)
    for k in range(3):
        chosen = torch.full((4, 1), k)
        drawn = given.exact(chosen, torch.zeros(4, 2, given.covariance.noise_size(1)))
        assert torch.allclose(drawn[:, 1], given.means[:, k], rtol=1e-4, atol=1e-4)


def test_temperatures_multiply_what_they_name() -> None:
    made = shaken(Dependency.LABEL)
    plain, hot = made(context()), made(context(), Temperatures(2.0, 4.0, 8.0, 16.0))
    assert torch.allclose(hot.log_weights, (plain.log_weights * 2).log_softmax(-1), atol=1e-6)
    assert torch.allclose(hot.means, plain.means * 4)
    uniform, noise = torch.rand(4, 2, 3), torch.randn(4, 2, D)
    still = torch.zeros_like(noise)
    moved = [g.relaxed(uniform, noise, 0.5) - g.relaxed(uniform, still, 0.5) for g in (plain, hot)]
    same_weights = replace(hot, log_weights=plain.log_weights, free=plain.free)
    wider = same_weights.relaxed(uniform, noise, 0.5) - plain.relaxed(uniform, still, 0.5)
    assert torch.allclose(wider, 8 * moved[0], atol=1e-4)
    made = shaken(Dependency.INPUT, hidden_dim=2)
    plain, hot = made(context()), made(context(), Temperatures(shared=2.0))
    bias = made.input_means.bias.unflatten(0, (3, 2)) @ made.basis + made.means
    assert torch.allclose(hot.means - bias, (plain.means - bias) * 2, atol=1e-5)
    for value, expected in zip(of(made(context(), Temperatures())), of(plain), strict=True):
        assert torch.equal(value, expected)


def test_standardised_features_have_no_mean_and_unit_spread() -> None:
    made = shaken(Dependency.INPUT)
    features = torch.randn(200, FEATURES) * torch.tensor([1.0, 10, 0.5, 5, 2, 1]) + 7
    made.standardise(features)
    seen = (features - made.feature_mean) * made.feature_scale
    assert torch.allclose(seen.mean(0), torch.zeros(FEATURES), atol=1e-4)
    assert torch.allclose(seen.std(0), torch.ones(FEATURES), atol=1e-4)


def test_a_feature_that_hardly_varies_is_not_blown_up() -> None:
    made = shaken(Dependency.INPUT)
    features = torch.randn(200, FEATURES) * torch.tensor([1.0, 1, 0, 1, 1, 1e-6])
    made.standardise(features)
    assert float(made.feature_scale.max() / made.feature_scale.min()) < 20


def test_the_unit_of_the_features_does_not_matter_once_standardised() -> None:
    made, plain = shaken(Dependency.INPUT), context()
    assert plain.features is not None
    givens = []
    for features in (plain.features, 50 * plain.features - 20):
        made.standardise(features)
        givens.append(made(Context(LABELS, features)))
    for one, other in zip(of(givens[0]), of(givens[1]), strict=True):
        assert torch.allclose(one, other, atol=1e-3)


def test_constant_features_and_a_single_row_stay_finite() -> None:
    made = shaken(Dependency.INPUT)
    for features in (
        torch.cat([torch.full((9, 1), 2.0), torch.randn(9, FEATURES - 1)], 1),
        torch.randn(1, FEATURES),
    ):
        made.standardise(features)
        given = made(Context(torch.zeros(len(features)).long(), features))
        assert all(bool(torch.isfinite(value).all()) for value in of(given))


def test_a_mixture_is_the_same_at_the_same_seed_and_starts_within_one() -> None:
    one, other = mixture(), mixture()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert float(one.means.abs().max()) <= 1
    assert float(one.means.std()) > 0.2


PAPER = {"wide_heads": True, "label_only": True, "random_start": True}


@pytest.mark.parametrize("dependency", FAMILIES)
def test_the_papers_heads_start_at_random_and_have_no_free_part(dependency: Dependency) -> None:
    made = mixture(dependency, **PAPER)
    learned = dict(made.named_parameters())
    has_weight_head = dependency is not Dependency.INDEPENDENT
    assert ("logits" in learned) is not has_weight_head
    assert {"means", "raw"} & set(learned) == (set() if dependency.sees_input else {"means", "raw"})
    base, elsewhere = made(context()), made(context(seed=1))
    relabelled = made(context(torch.tensor([1, 1, 2, 0])))
    assert torch.equal(base.log_weights, relabelled.log_weights) is not dependency.sees_label
    for name in ("means", "raw"):
        differs = not torch.equal(getattr(base, name), getattr(elsewhere, name))
        assert differs is dependency.sees_input


@pytest.mark.parametrize("dependency", [Dependency.INDEPENDENT, Dependency.LABEL])
def test_free_components_of_the_paper_start_within_one_and_wide(dependency: Dependency) -> None:
    made = mixture(dependency, min_std=1e-4, **PAPER)
    assert float(made.means.abs().max()) <= 1
    assert float(made.means.std()) > 0.2
    stds = made.covariance.std(made.raw, torch.ones(3, 1))
    assert torch.allclose(stds, torch.full((3, D), math.log(2)), atol=1e-5)


def test_gradients_reach_every_parameter_of_the_papers_heads() -> None:
    made = mixture(Dependency.JOINT, covariance="full", **PAPER).requires_grad_(True)
    given = made(context())
    generator = torch.Generator().manual_seed(0)
    gumbel = torch.rand(4, 9, 3, generator=generator)
    noise = torch.randn(4, 9, made.covariance.noise_size(3), generator=generator)
    given.relaxed(gumbel, noise, 1.0).square().sum().backward()
    for name, value in made.named_parameters():
        assert value.grad is not None, name
        assert float(value.grad.abs().max()) > 0, name
