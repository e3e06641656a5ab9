from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers import FAMILIES, evaluate_part
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Metric
from nppr.errors import SpecError
from nppr.measuring.measurement import measure
from nppr.models import Classifier, FrozenClassifier, frozen
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.noise.mixture import Context
from nppr.sources import Uniform
from nppr.sources.learned import Learned

SHAPE, CLASSES, FEATURES = (1, 4, 4), 3, 6
BUDGETS = [Budget.linf(0.1), Budget.l2(0.5)]
X = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 2, 1, 1, 0])


def classifier(features: int = FEATURES, seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    layers = nn.Flatten(), nn.Linear(16, features), nn.Tanh(), nn.Linear(features, CLASSES)
    return Classifier(nn.Sequential(*layers))


def distribution(dependency: Dependency = Dependency.JOINT, floor: float = 0.0) -> Distribution:
    torch.manual_seed(0)
    family = Family(
        dependency, components=3, hidden_dim=8, label_dim=4, upsampler="bicubic", floor=floor
    )
    made = Distribution(family, SHAPE, CLASSES, FEATURES)
    with torch.no_grad():
        for value in made.parameters():
            value.add_(0.5 * torch.randn_like(value))
    return made


def learned(
    dependency: Dependency = Dependency.JOINT, budget: Budget = BUDGETS[0], **more: Any
) -> Learned:
    return Learned(budget, distribution(dependency), **more)


def block(
    indices: tuple[int, ...] = (0, 1, 2, 3, 4), seed: int = 0, number: int = 0, size: int = 6
) -> DrawBlock:
    return DrawBlock(seed, "evaluate", indices, number, size, torch.device("cpu"))


def drawn(source: Learned, model: Classifier | None = None, **changes: Any) -> Tensor:
    with frozen(model or classifier()) as seen:
        return source.perturb(seen, X, Y, block(**changes))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("dependency", FAMILIES)
def test_draws_keep_the_contract_of_all_sources(budget: Budget, dependency: Dependency) -> None:
    source = learned(dependency, budget)
    delta = drawn(source)
    assert delta.shape == (5, 6, *SHAPE)
    assert delta.dtype == X.dtype
    assert not delta.requires_grad
    assert bool(budget.contains(delta).all())
    assert torch.equal(delta, drawn(source))
    assert not torch.allclose(delta, drawn(source, seed=1))
    assert not torch.allclose(delta, drawn(source, number=1))
    assert not torch.allclose(delta[:, 0], delta[:, 1])
    assert (source.metric, source.fixed_draws, source.cost) == (Metric.NPPR, None, 1.0)


@pytest.mark.parametrize("dependency", FAMILIES)
def test_draws_of_an_input_do_not_depend_on_its_company(dependency: Dependency) -> None:
    source, together = learned(dependency), drawn(learned(dependency))
    with frozen(classifier()) as seen:
        for rows in ([3], [4, 0], [2, 1, 3]):
            apart = source.perturb(seen, X[rows], Y[rows], block(tuple(rows)))
            assert torch.allclose(apart, together[rows], atol=1e-6)


def test_draws_are_those_of_the_distribution() -> None:
    source, model = learned(), classifier()
    with frozen(model) as seen, torch.inference_mode():
        context = Context(Y, seen.features(X))
        expected = source.distribution.exact(context, block(), source.budget)
    assert torch.equal(drawn(source, model), expected)


def test_another_radius_scales_the_draws() -> None:
    made = distribution()
    small, large = (drawn(Learned(Budget.linf(radius), made)) for radius in (0.1, 0.2))
    assert torch.allclose(2 * small, large, atol=1e-6)


def test_a_floor_of_one_is_uniform_noise() -> None:
    made = distribution(Dependency.LABEL, floor=1.0)
    for budget in BUDGETS:
        with frozen(classifier()) as seen:
            expected = Uniform(budget).perturb(seen, X, Y, block())
            assert torch.equal(Learned(budget, made).perturb(seen, X, Y, block()), expected)


@pytest.mark.parametrize("dependency", FAMILIES)
def test_features_are_looked_up_once_for_all_blocks_of_a_chunk(dependency: Dependency) -> None:
    source = learned(dependency)
    calls = 5 if dependency.sees_input else 0
    with frozen(classifier()) as seen:
        blocks = [source.perturb(seen, X, Y, block(number=number)) for number in range(4)]
        assert seen.calls == calls
        source.perturb(seen, X[:2], Y[:2], block((0, 1)))
        assert seen.calls == calls + (2 if dependency.sees_input else 0)
    assert torch.equal(blocks[3], drawn(learned(dependency), number=3))


def test_features_of_another_chunk_split_or_classifier_are_looked_up_again() -> None:
    source, other = learned(), classifier(seed=1)
    first = drawn(source)
    assert torch.equal(drawn(source, other), drawn(learned(), other))
    assert torch.equal(drawn(source), first)
    with frozen(classifier()) as seen:
        shuffled = [4, 3, 2, 1, 0]
        moved = source.perturb(seen, X[shuffled], Y[shuffled], block((4, 3, 2, 1, 0)))
        assert torch.allclose(moved, first[shuffled], atol=1e-6)
        elsewhere = DrawBlock(0, "select", (4, 3, 2, 1, 0), 0, 6, torch.device("cpu"))
        source.perturb(seen, X, Y, elsewhere)
        assert seen.calls == 10


def test_known_features_need_no_classifier() -> None:
    model = classifier()
    with frozen(model) as seen, torch.no_grad():
        rows = seen.features(X)
    source = learned(known={10 + i: row for i, row in enumerate(rows)})
    with frozen(model) as seen:
        found = source.perturb(seen, X, Y, block((10, 11, 12, 13, 14)))
        assert seen.calls == 0
        expected = learned().perturb(seen, X, Y, block((10, 11, 12, 13, 14)))
    assert torch.equal(found, expected)
    some = learned(known={10: rows[0]})  # not all are known: all are looked at
    with frozen(model) as seen:
        assert torch.equal(some.perturb(seen, X, Y, block((10, 11, 12, 13, 14))), expected)
        assert seen.calls == 5


def test_features_may_come_from_another_classifier() -> None:
    other, narrow = classifier(seed=3), classifier(features=2)
    source = learned(feature_model=other)
    with frozen(narrow) as seen:
        found = source.perturb(seen, X, Y, block())
        assert seen.calls == 0
    assert torch.equal(found, drawn(learned(), other))


def test_the_classifier_is_left_as_it_was() -> None:
    other = classifier()
    assert other.module is not None
    other.module.train()
    source = learned(feature_model=other)
    drawn(source, classifier(seed=1))
    source.sample(X, Y, 2)
    assert all(layer.training for layer in other.module.modules())


def test_another_number_of_features_is_named() -> None:
    with pytest.raises(SpecError, match=r"`distribution` sees 6 features, got 2 .*feature-model"):
        drawn(learned(), classifier(features=2))
    with pytest.raises(SpecError, match="`distribution` sees 6 features, got 2"):
        drawn(learned(feature_model=classifier(features=2)))
    drawn(learned(Dependency.LABEL), classifier(features=2))


@pytest.mark.parametrize("shape", [(3, 4, 4), (1, 4, 5), (1, 5, 4)])
@pytest.mark.parametrize("dependency", FAMILIES)
def test_images_of_another_shape_are_named(
    shape: tuple[int, int, int], dependency: Dependency
) -> None:
    with (
        frozen(classifier()) as seen,
        pytest.raises(SpecError, match=r"`distribution` perturbs images of shape \(1, 4, 4\), got"),
    ):
        learned(dependency).perturb(seen, torch.zeros(5, *shape), Y, block())


@pytest.mark.parametrize("dependency", FAMILIES)
def test_sample_draws_for_images_at_hand(dependency: Dependency) -> None:
    source, model = learned(dependency), classifier()
    delta = source.sample(X, Y, 40, model=model)
    assert delta.shape == (5, 40, *SHAPE)
    assert not delta.requires_grad
    assert bool(source.budget.contains(delta).all())
    assert torch.equal(delta, source.sample(X, Y, 40, model=model))
    assert not torch.allclose(delta, source.sample(X, Y, 40, model=model, seed=1))


def test_sample_follows_the_images_it_is_given() -> None:
    source, model = learned(Dependency.INPUT), classifier()
    first = source.sample(X, Y, 3, model=model)
    assert not torch.allclose(first, source.sample(1 - X, Y, 3, model=model))
    assert torch.equal(first, source.sample(X, Y, 3, model=model))


def test_sample_asks_for_a_classifier_only_where_features_are_seen() -> None:
    for dependency in FAMILIES:
        source = learned(dependency)
        if dependency.sees_input:
            with pytest.raises(SpecError, match="`model` must be given"):
                source.sample(X, Y, 3)
            with_model = source.sample(X, Y, 3, model=classifier())
            known = learned(dependency, feature_model=classifier())
            assert torch.equal(known.sample(X, Y, 3), with_model)
        else:
            expected = source.sample(X, Y, 3, model=classifier())
            assert torch.equal(source.sample(X, Y, 3), expected)


@pytest.mark.parametrize("draws", [0, -1])
def test_sample_needs_a_draw(draws: int) -> None:
    with pytest.raises(SpecError, match="`draws` must be a whole number >= 1"):
        learned(Dependency.LABEL).sample(X, Y, draws)


def test_names_hold_rung_floor_and_seed() -> None:
    assert learned().name == "nppr:joint"
    assert Learned(BUDGETS[0], distribution(floor=0.25)).name == "nppr:joint:floor=0.25"
    assert learned(fit_seed=2).name == "nppr:joint:fit-seed=2"
    kept = learned(Dependency.LABEL)
    assert replace(kept, dependency=Dependency.JOINT).name == "nppr:joint", "its parent's law"


def test_a_measurement_is_the_same_by_hand() -> None:
    source, model = learned(), classifier()
    tally = measure(source, model, evaluate_part(X, Y), draws=6, seed=0)
    with frozen(model) as seen, torch.inference_mode():
        delta = source.perturb(seen, X, Y, block())
        images = (X.unsqueeze(1) + delta).clamp(0, 1).flatten(0, 1)
        right = seen.logits(images).argmax(1).view(5, 6) == Y[:, None]
    assert tally.correct.tolist() == right.sum(1).tolist()


def test_the_counting_classifier_counts() -> None:
    with frozen(classifier()) as seen:
        assert isinstance(seen, FrozenClassifier)
        seen.features(X)
        assert seen.calls == 5
