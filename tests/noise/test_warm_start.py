from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers import FAMILIES
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.errors import SpecError
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family, Rule
from nppr.noise.mixture import Context, Given
from nppr.noise.rungs import Dependency
from nppr.noise.warm_start import grow, only_component, route_by_features, route_by_label

SHAPE, CLASSES, FEATURES, K = (1, 5, 6), 4, 6, 3
LABELS = torch.tensor([0, 3, 1, 2, 2])
NESTED = [(a, b) for a in FAMILIES for b in FAMILIES if b.contains(a)]


def family(dependency: Dependency, **changes: object) -> Family:
    small = Family(dependency, components=K, hidden_dim=8, label_dim=4, upsampler="bicubic")
    return small.with_(**changes)


def parent_of(dependency: Dependency, **changes: object) -> Distribution:
    """A distribution in the middle of a fit: every parameter is somewhere."""
    torch.manual_seed(0)
    made = Distribution(family(dependency, **changes), SHAPE, CLASSES, FEATURES)
    made.requires_grad_(False)
    for value in made.parameters():
        value.add_(0.5 * torch.randn_like(value))
    if dependency.sees_input:
        made.mixture.standardise(3 * torch.randn(20, FEATURES) + 1)
    return made


def child_of(parent: Distribution, dependency: Dependency, components: int = K) -> Distribution:
    larger = parent.family.with_(dependency=dependency, components=components)
    return grow(parent, larger, CLASSES, FEATURES).requires_grad_(False)


def context() -> Context:
    return Context(LABELS, torch.randn(5, FEATURES, generator=torch.Generator().manual_seed(0)))


def exact(made: Distribution) -> Tensor:
    draws = DrawBlock(0, "evaluate", tuple(range(5)), 0, 16, torch.device("cpu"))
    with torch.no_grad():
        return made.exact(context(), draws, Budget.linf(0.1))


def density(made: Distribution, latent: Tensor) -> Tensor:
    given: Given = made.mixture(context())
    values = (value.unsqueeze(1) for value in (given.means, given.raw, given.growth))
    each = given.covariance.component(*values).log_prob(latent.unsqueeze(2))
    return torch.logsumexp(given.log_weights.unsqueeze(1) + each, -1)


def law(made: Distribution) -> tuple[Tensor, Tensor]:
    """Weights `(B, K)` and components `(B, K, ...)` for every input."""
    given = made.mixture(context())
    k = made.family.components
    values = [given.means, given.raw, given.growth]
    components = torch.cat([value.expand(5, k, -1) for value in values], -1)
    return given.log_weights.exp().expand(5, k), components


def require_same_law(parent: Distribution, child: Distribution) -> None:
    weights, components = law(parent)
    child_weights, child_components = law(child)
    same = torch.isclose(components.unsqueeze(2), child_components.unsqueeze(1), atol=1e-5).all(-1)
    assert bool((same.sum(1) == 1).all()), "every component is a copy of one of the parent"
    summed = (same * child_weights.unsqueeze(1)).sum(-1)
    assert torch.allclose(summed, weights, atol=1e-5)
    latent = torch.randn(5, 9, parent.upsampler.latent_dim)
    assert torch.allclose(density(child, latent), density(parent, latent), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("small", "large"), NESTED)
@pytest.mark.parametrize("covariance", ["diag", "lowrank:2", "full"])
@pytest.mark.parametrize("wide_heads", [False, True])
def test_a_child_that_sees_more_starts_with_its_parents_perturbations(
    small: Dependency, large: Dependency, covariance: str, wide_heads: bool
) -> None:
    parent = parent_of(small, covariance=covariance, wide_heads=wide_heads)
    child = child_of(parent, large)
    assert child.family.dependency is large
    assert torch.allclose(exact(child), exact(parent), atol=1e-6)


@pytest.mark.parametrize("upsampler", ["none", "trainable", "multiscale"])
def test_a_child_keeps_the_upsampler_of_its_parent(upsampler: str) -> None:
    parent = parent_of(Dependency.LABEL, upsampler=upsampler)
    assert torch.allclose(exact(child_of(parent, Dependency.JOINT)), exact(parent), atol=1e-6)


@pytest.mark.parametrize(("small", "large"), NESTED)
@pytest.mark.parametrize("components", [3, 4, 5, 8])
def test_more_components_have_the_law_of_fewer(
    small: Dependency, large: Dependency, components: int
) -> None:
    parent = parent_of(small)
    child = child_of(parent, large, components)
    assert child.family.components == components
    require_same_law(parent, child)


def test_one_component_becomes_equal_ones() -> None:
    parent = parent_of(Dependency.INDEPENDENT, components=1)
    child = child_of(parent, Dependency.JOINT, 5)
    weights, components = law(child)
    assert torch.allclose(weights, torch.full((5, 5), 0.2))
    assert torch.allclose(components, law(parent)[1].expand_as(components))
    assert torch.allclose(exact(child), exact(parent), atol=1e-6)


def test_the_heaviest_are_split_first() -> None:
    parent = parent_of(Dependency.INDEPENDENT)
    parent.mixture.logits.copy_(torch.tensor([0.6, 0.3, 0.1]).log())
    child = child_of(parent, Dependency.INDEPENDENT, 6)
    weights, _ = law(child)
    expected = torch.tensor([0.2, 0.2, 0.2, 0.15, 0.15, 0.1])
    assert torch.allclose(weights[0], expected, atol=1e-5)


def test_components_that_are_never_drawn_give_way_to_copies() -> None:
    parent = parent_of(Dependency.INDEPENDENT)
    parent.mixture.logits.copy_(torch.tensor([0.0, -1000.0, 0.0]))
    child = child_of(parent, Dependency.INDEPENDENT)
    weights, components = law(child)
    assert float(weights.min()) > 0.2
    unused = law(parent)[1][0, 1]
    assert not bool(torch.isclose(components[0], unused).all(-1).any())
    latent = torch.randn(5, 9, parent.upsampler.latent_dim)
    assert torch.allclose(density(child, latent), density(parent, latent), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("small", [Dependency.LABEL, Dependency.INPUT, Dependency.JOINT])
def test_components_that_a_context_may_draw_are_kept(small: Dependency) -> None:
    parent = parent_of(small)
    parent.mixture.logits.copy_(torch.tensor([0.0, -30.0, 0.0]))
    require_same_law(parent, child_of(parent, Dependency.JOINT, 4))


@pytest.mark.parametrize(("small", "large"), NESTED)
@pytest.mark.parametrize("components", [3, 5])
def test_a_parent_of_one_chosen_component_gives_equal_copies(
    small: Dependency, large: Dependency, components: int
) -> None:
    parent = parent_of(small).sharpened(Rule.CHOSEN, torch.tensor(1))
    child = child_of(parent, large, components)
    assert child.rule is Rule.WEIGHTS
    weights, found = law(child)
    assert torch.allclose(weights, torch.full((5, components), 1 / components))
    assert torch.allclose(found, law(parent)[1][:, 1:2].expand_as(found))
    assert torch.allclose(exact(child), exact(parent), atol=1e-6)


def test_a_parent_of_one_largest_component_gives_equal_copies() -> None:
    parent = parent_of(Dependency.INDEPENDENT).sharpened(Rule.LARGEST)
    child = child_of(parent, Dependency.JOINT, 5)
    assert torch.allclose(exact(child), exact(parent), atol=1e-6)
    assert torch.allclose(law(child)[0], torch.full((5, 5), 0.2))


def test_the_only_component() -> None:
    free = parent_of(Dependency.INDEPENDENT)
    assert only_component(free) is None
    assert only_component(free.sharpened(Rule.CHOSEN, torch.tensor(2))) == 2
    assert only_component(free.sharpened(Rule.CHOSEN, torch.tensor([0, 0, 1, 0]))) is None
    largest = free.sharpened(Rule.LARGEST)
    assert only_component(largest) == int(free.mixture.logits.argmax())
    for dependency in (Dependency.LABEL, Dependency.INPUT, Dependency.JOINT):
        assert only_component(parent_of(dependency).sharpened(Rule.LARGEST)) is None


def test_growth_leaves_the_parent_alone() -> None:
    parent = parent_of(Dependency.LABEL)
    before = exact(parent)
    child = child_of(parent, Dependency.JOINT, 5)
    for value in child.parameters():
        value.zero_()
    assert torch.equal(exact(parent), before)


@pytest.mark.parametrize(
    ("small", "large"), [(a, b) for a in FAMILIES for b in FAMILIES if not b.contains(a)]
)
def test_a_child_must_see_what_its_parent_sees(small: Dependency, large: Dependency) -> None:
    with pytest.raises(SpecError, match="`family` must contain the family of its parent"):
        child_of(parent_of(small), large, 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"components": 2},
        {"covariance": "full"},
        {"upsampler": "none"},
        {"upsampler": "trainable", "latent_dim": 16},
        {"grid": 3},
        {"min_std": 0.1},
        {"kernel": -0.75},
    ],
)
def test_a_child_must_contain_its_parent(changes: dict[str, object]) -> None:
    parent = parent_of(Dependency.LABEL)
    with pytest.raises(SpecError, match=r"`family` must contain .* at least 3"):
        grow(parent, parent.family.with_(**changes), CLASSES, FEATURES)


def test_heads_that_start_at_random_have_no_parent_that_sees_less() -> None:
    parent = parent_of(Dependency.INPUT, random_start=True, wide_heads=True)
    require_same_law(parent, child_of(parent, Dependency.INPUT, 5))
    with pytest.raises(SpecError, match="`family` must contain the family of its parent"):
        child_of(parent, Dependency.JOINT)


SMALL, MANY_FEATURES = (1, 4, 4), 20


def child(dependency: Dependency, classes: int, components: int) -> Distribution:
    """Equal components, as growth leaves them."""
    torch.manual_seed(0)
    small = Family(Dependency.INDEPENDENT, components=1, hidden_dim=64, upsampler="bicubic")
    larger = small.with_(dependency=dependency, components=components)
    parent = Distribution(small, SMALL, classes)
    return grow(parent, larger, classes, MANY_FEATURES).requires_grad_(False)


def separable(classes: int, inputs: int = 200) -> tuple[Tensor, Tensor]:
    """Features in well separated clusters, one for every class."""
    generator = torch.Generator().manual_seed(1)
    centres = 3 * torch.randn(classes, MANY_FEATURES, generator=generator)
    labels = torch.randint(classes, (inputs,), generator=generator)
    noise = 0.2 * torch.randn(inputs, MANY_FEATURES, generator=generator)
    return centres[labels] + noise, labels


def exact_of(made: Distribution, context: Context) -> Tensor:
    draws = DrawBlock(0, "evaluate", tuple(range(len(context.labels))), 0, 8, torch.device("cpu"))
    return made.exact(context, draws, Budget.linf(0.1))


@pytest.mark.parametrize(("classes", "components"), [(10, 7), (10, 3), (4, 8), (2, 2), (5, 1)])
def test_each_class_gets_its_component_by_label(classes: int, components: int) -> None:
    made = child(Dependency.LABEL, classes, components)
    route_by_label(made)
    labels = torch.arange(classes)
    log_weights = made.mixture(Context(labels)).log_weights
    assert torch.equal(log_weights.argmax(-1), labels % components)
    if components > 1:
        best, second = log_weights.topk(2).values.T
        assert bool((best - second > 2).all())


@pytest.mark.parametrize("dependency", [Dependency.LABEL, Dependency.JOINT])
def test_routing_equal_components_by_label_changes_no_perturbation(dependency: Dependency) -> None:
    made = child(dependency, 6, 4)
    features, labels = separable(6)
    context = Context(labels, features)
    before = exact_of(made, context)
    route_by_label(made)
    assert torch.allclose(exact_of(made, context), before, atol=1e-6)
    weights = made.mixture(context).log_weights.exp()
    assert float(weights.max()) > 0.5


@pytest.mark.parametrize("dependency", [Dependency.INPUT, Dependency.JOINT])
@pytest.mark.parametrize("components", [3, 6, 9])
def test_features_that_separate_the_classes_find_their_component(
    dependency: Dependency, components: int
) -> None:
    made = child(dependency, 6, components)
    features, labels = separable(6)
    made.mixture.standardise(features)
    before = exact_of(made, Context(labels, features))
    route_by_features(made, features, labels)
    context = Context(labels, features)
    found = made.mixture(context).log_weights.argmax(-1)
    assert float((found == labels % components).float().mean()) > 0.98
    assert torch.allclose(exact_of(made, context), before, atol=1e-6)


def test_routing_by_features_carries_over_to_other_inputs() -> None:
    made = child(Dependency.INPUT, 6, 6)
    features, labels = separable(6, 400)
    made.mixture.standardise(features[:200])
    route_by_features(made, features[:200], labels[:200])
    found = made.mixture(Context(labels[200:], features[200:])).log_weights.argmax(-1)
    assert float((found == labels[200:]).float().mean()) > 0.98


def test_routing_by_features_does_not_look_at_the_label_it_is_given_later() -> None:
    made = child(Dependency.INPUT, 6, 6)
    features, labels = separable(6)
    route_by_features(made, features, labels)
    one = made.mixture(Context(labels, features)).log_weights
    other = made.mixture(Context(labels.flip(0), features)).log_weights
    assert torch.equal(one, other)


def test_features_that_never_vary_route_nowhere_but_stay_finite() -> None:
    made = child(Dependency.INPUT, 6, 3)
    features, labels = torch.zeros(20, MANY_FEATURES), torch.arange(20) % 6
    route_by_features(made, features, labels)
    assert bool(torch.isfinite(made.mixture(Context(labels, features)).log_weights).all())
