from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers import FAMILIES
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.noise.distribution import Distribution
from nppr.noise.family import UPSAMPLERS, Family, Rule, Temperatures
from nppr.noise.mixture import Context
from nppr.noise.rungs import Dependency
from nppr.sources import Uniform

SHAPE, CLASSES, FEATURES = (3, 5, 6), 4, 6
LABELS = torch.tensor([0, 3, 1, 3, 2])
BUDGETS = [Budget.linf(0.1), Budget.l2(0.5)]
COVARIANCES = ["diag", "lowrank:2", "full"]


def family(dependency: Dependency = Dependency.JOINT, **changes: object) -> Family:
    small = Family(dependency, components=3, hidden_dim=8, label_dim=4, upsampler="bicubic")
    return small.with_(**changes)


def shaken(
    dependency: Dependency = Dependency.JOINT, spread: float = 0.5, **changes: object
) -> Distribution:
    torch.manual_seed(0)
    made = Distribution(family(dependency, **changes), SHAPE, CLASSES, FEATURES)
    with torch.no_grad():
        for value in made.parameters():
            value.add_(spread * torch.randn_like(value))
    return made


def block(seed: int = 0, size: int = 6, inputs: int = len(LABELS), number: int = 0) -> DrawBlock:
    return DrawBlock(seed, "evaluate", tuple(range(inputs)), number, size, torch.device("cpu"))


def context() -> Context:
    return Context(LABELS, torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(0)))


@torch.no_grad()
def exact(
    made: Distribution, budget: Budget = BUDGETS[0], draws: DrawBlock | None = None
) -> Tensor:
    return made.exact(context(), draws or block(), budget)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("covariance", COVARIANCES)
@settings(max_examples=20)
@given(floor=st.floats(0, 1), spread=st.floats(0, 30), seed=st.integers(0, 99))
def test_perturbations_never_leave_the_budget(
    budget: Budget, covariance: str, floor: float, spread: float, seed: int
) -> None:
    made = shaken(spread=spread, covariance=covariance, floor=floor)
    drawn = exact(made, budget, block(seed))
    with torch.no_grad():
        relaxed, _ = made.relaxed(context(), block(seed), budget, 0.5)
    for delta in (drawn, relaxed):
        assert delta.shape == (5, 6, *SHAPE)
        assert bool(budget.contains(delta).all())


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("dependency", FAMILIES)
def test_a_floor_of_one_is_the_source_uniform_bit_for_bit(
    budget: Budget, dependency: Dependency
) -> None:
    made = shaken(dependency, floor=1.0)
    x = torch.zeros(5, *SHAPE)
    expected = Uniform(budget).perturb(None, x, LABELS, block(7))  # type: ignore[arg-type]
    assert torch.equal(exact(made, budget, block(7)), expected)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_floor_mixes_the_noise_with_uniform_noise(budget: Budget) -> None:
    bare, uniform = exact(shaken(), budget), exact(shaken(floor=1.0), budget)
    mixed = exact(shaken(floor=0.3), budget)
    assert torch.allclose(mixed, 0.7 * bare + 0.3 * uniform, atol=1e-6)
    assert not torch.allclose(bare, uniform, atol=1e-3)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("scaled", [True, False])
def test_without_a_floor_the_draws_are_squashed_images_of_the_latent(
    budget: Budget, scaled: bool
) -> None:
    made = shaken(scaled=scaled).requires_grad_(False)
    given_ = made.mixture(context())
    draws = block()
    chosen = given_.choose(draws.uniform("learned/component", (1,)).squeeze(-1))
    latent = given_.exact(chosen, draws.normal("learned", (48,)))
    scale = math.exp(-math.log1p(math.exp(float(made.raw_scale)))) if scaled else 1.0
    expected = scale * budget.squash(made.upsampler(latent))
    assert torch.allclose(exact(made, budget), expected, atol=1e-6)


def test_the_scale_starts_near_one_and_lies_below_it() -> None:
    made = Distribution(family(), SHAPE, CLASSES, FEATURES).requires_grad_(False)
    assert 0.999 < float(made.scale) <= 1
    for raw in (-30.0, 0.0, 30.0):
        made.raw_scale.fill_(raw)
        assert 0 < float(made.scale) <= 1
    unscaled = Distribution(family(scaled=False), SHAPE, CLASSES, FEATURES)
    assert float(unscaled.scale) == 1
    assert not any("scale" in name for name, _ in unscaled.named_parameters())


def test_the_weights_choose_components_by_default() -> None:
    made = shaken(Dependency.LABEL).requires_grad_(False)
    assert made.rule is Rule.WEIGHTS
    ctx, draws = (
        context(),
        DrawBlock(0, "evaluate", tuple(range(5)), 0, 4000, torch.device("cpu"), 4000),
    )
    given_ = made.mixture(ctx)
    chosen = made.choose(given_, ctx, draws)
    shares = torch.stack([row.bincount(minlength=3) / 4000 for row in chosen])
    assert torch.allclose(shares, given_.log_weights.exp(), atol=0.04)


@pytest.mark.parametrize("dependency", FAMILIES)
def test_the_largest_weight_of_each_context_chooses(dependency: Dependency) -> None:
    made = shaken(dependency, spread=2.0).sharpened(Rule.LARGEST)
    with torch.no_grad():
        free = made.mixture(context()).log_weights.mean(0)
        made.mixture.logits.sub_(free)  # no component is preferred by all contexts
    given_ = made.mixture(context())
    largest = given_.log_weights.argmax(-1).expand(5)
    chosen = made.choose(given_, context(), block())
    assert torch.equal(chosen, largest[:, None])
    if dependency is not Dependency.INDEPENDENT:
        assert len(largest.unique()) > 1


def test_the_chosen_component_of_each_class() -> None:
    made = shaken().sharpened(Rule.CHOSEN, torch.tensor([2, 0, 1, 1]))
    chosen = made.choose(made.mixture(context()), context(), block())
    assert chosen.tolist() == [[k] for k in (2, 1, 0, 1, 1)]
    one = made.sharpened(Rule.CHOSEN, torch.tensor(2))
    assert one.choose(made.mixture(context()), context(), block()).unique().tolist() == [2]


def test_a_sharpened_copy_leaves_the_original_alone() -> None:
    made = shaken()
    before = exact(made)
    sharp = made.sharpened(Rule.CHOSEN, torch.tensor(1))
    with torch.no_grad():
        sharp.mixture.means.zero_()
    assert made.rule is Rule.WEIGHTS
    assert torch.equal(exact(made), before)


@pytest.mark.parametrize("rule", Rule)
def test_one_component_is_the_same_by_every_rule(rule: Rule) -> None:
    made = shaken(components=1)
    torch.testing.assert_close(exact(made.sharpened(rule)), exact(made), rtol=0, atol=1e-6)


def test_with_floor_copies_all_but_the_floor() -> None:
    made = shaken().sharpened(Rule.CHOSEN, torch.tensor([2, 0, 1, 1]))
    before = exact(made)
    other = made.with_floor(0.4)
    assert (made.family.floor, other.family.floor, other.mixture.family.floor) == (0.0, 0.4, 0.4)
    assert other.family == made.family.with_(floor=0.4)
    assert torch.equal(exact(other.with_floor(0.0)), before)
    with torch.no_grad():
        other.mixture.means.zero_()
    assert torch.equal(exact(made), before)


@pytest.mark.parametrize("dependency", FAMILIES)
@pytest.mark.parametrize("upsampler", UPSAMPLERS)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradients_of_relaxed_draws_reach_every_parameter(
    dependency: Dependency, upsampler: str, covariance: str
) -> None:
    made = shaken(dependency, upsampler=upsampler, covariance=covariance, floor=0.2)
    delta, _ = made.relaxed(context(), block(size=16), BUDGETS[0], 0.7)
    ((delta - 0.05) ** 2).sum().backward()
    for name, value in made.named_parameters():
        assert value.grad is not None, name
        assert bool(torch.isfinite(value.grad).all()), name
        assert bool((value.grad != 0).any()), name


def test_relaxed_draws_return_the_mixture_they_came_from() -> None:
    made, heat = shaken().requires_grad_(False), Temperatures(weights=2.0, means=3.0)
    _, given_ = made.relaxed(context(), block(), BUDGETS[0], 0.7, heat)
    expected = made.mixture(context(), heat)
    assert torch.equal(given_.log_weights, expected.log_weights)
    assert torch.equal(given_.means, expected.means)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_relaxed_and_exact_draws_agree_for_one_component(covariance: str) -> None:
    made = shaken(components=1, covariance=covariance).requires_grad_(False)
    relaxed, _ = made.relaxed(context(), block(), BUDGETS[0], 0.7)
    assert torch.allclose(relaxed, exact(made), atol=1e-6)


def test_draws_depend_on_seed_and_block_only() -> None:
    made = shaken()
    first = exact(made)
    assert torch.equal(first, exact(made))
    assert not torch.allclose(first, exact(made, draws=block(seed=1)))
    assert not torch.allclose(first, exact(made, draws=block(number=1)))
    fewer = exact(made, draws=block(size=2))
    assert torch.allclose(fewer, first[:, :2], atol=1e-6)


def test_features_are_counted_only_where_they_are_seen() -> None:
    for dependency in FAMILIES:
        assert shaken(dependency).features == (FEATURES if dependency.sees_input else 0)
