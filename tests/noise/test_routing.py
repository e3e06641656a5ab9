from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nppr.budget import Budget
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.noise.mixture import Context
from nppr.noise.warm_start import grown, route_by_features, route_by_label
from nppr.draws import DrawBlock

SHAPE, FEATURES = (1, 4, 4), 20


def child(dependency: Dependency, classes: int, components: int) -> Distribution:
    """Equal components, as growth leaves them."""
    torch.manual_seed(0)
    small = Family(Dependency.INDEPENDENT, components=1, hidden_dim=64, upsampler="bicubic")
    larger = small.with_(dependency=dependency, components=components)
    parent = Distribution(small, SHAPE, classes)
    return grown(parent, larger, classes, FEATURES).requires_grad_(False)


def separable(classes: int, inputs: int = 200) -> tuple[Tensor, Tensor]:
    """Features in well separated clusters, one for every class."""
    generator = torch.Generator().manual_seed(1)
    centres = 3 * torch.randn(classes, FEATURES, generator=generator)
    labels = torch.randint(classes, (inputs,), generator=generator)
    noise = 0.2 * torch.randn(inputs, FEATURES, generator=generator)
    return centres[labels] + noise, labels


def exact(made: Distribution, context: Context) -> Tensor:
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
    before = exact(made, context)
    route_by_label(made)
    assert torch.allclose(exact(made, context), before, atol=1e-6)
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
    before = exact(made, Context(labels, features))
    route_by_features(made, features, labels)
    context = Context(labels, features)
    found = made.mixture(context).log_weights.argmax(-1)
    assert float((found == labels % components).float().mean()) > 0.98
    assert torch.allclose(exact(made, context), before, atol=1e-6)


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
    features, labels = torch.zeros(20, FEATURES), torch.arange(20) % 6
    route_by_features(made, features, labels)
    assert bool(torch.isfinite(made.mixture(Context(labels, features)).log_weights).all())
