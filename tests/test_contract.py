"""What every perturbation source must keep, over the list of all of them."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import torch
from torch import nn

from nppr.budget import Budget, perturbed
from nppr.classifiers import Classifier, load_classifier, prepare
from nppr.classifiers.wrap import frozen
from nppr.data import load_data
from nppr.distributions import Dependency, Distribution, Family
from nppr.draws import DrawBlock
from nppr.measure import measure
from nppr.sources import SOURCES, Clean, Learned, parse_sources
from nppr.types import Metric, PerturbationSource

BUDGETS = [Budget.linf(0.1), Budget.l2(0.8)]
SPECS = [*SOURCES, "gaussian:scale=3", "uniform:scale=2", "pgd:steps=3:restarts=2"]


def all_sources() -> list[PerturbationSource]:
    parsed = [source for spec in SPECS for b in BUDGETS for source in parse_sources(spec, b)]
    return [*parsed, *(learned(each, b) for each in Dependency for b in BUDGETS)]


def learned(dependency: Dependency, budget: Budget) -> Learned:
    """A distribution that was not fitted, with heads that are not zero any more."""
    torch.manual_seed(0)
    made = Distribution(Family(dependency, components=3, floor=0.2), (1, 8, 8), 10, 256)
    with torch.no_grad():
        for parameter in made.mixture.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape))
    return Learned(budget, made.eval(), label=f"nppr-{dependency.value}")


sources = pytest.mark.parametrize(
    "source", all_sources(), ids=lambda source: f"{source.name}-{source.budget}"
)
DATA = load_data("digits").limit(inputs=40)


def module() -> nn.Module:
    loaded = load_classifier("digits-cnn").module
    assert loaded is not None
    return loaded


def classifier() -> Classifier:
    known = load_classifier("digits-cnn")
    return Classifier(module(), mean=known.mean, std=known.std)


def block(source: PerturbationSource, indices: tuple[int, ...], seed: int = 0) -> DrawBlock:
    capacity = source.fixed_draws or 16
    size = source.fixed_draws or 5
    return DrawBlock(seed, "evaluate", indices, 0, size, torch.device("cpu"), capacity)


def perturbations(source: PerturbationSource, rows: list[int], seed: int = 0) -> torch.Tensor:
    x, y = DATA.evaluate.batch(np.array(rows))
    with frozen(classifier()) as model:
        return source.perturb(model, x, y, block(source, tuple(rows), seed))


def test_every_registered_source_is_here() -> None:
    kinds = {type(source).__name__.lower() for source in all_sources()}
    assert kinds == {*SOURCES, "learned"}


@sources
def test_budget_range_and_shape(source: PerturbationSource) -> None:
    delta = perturbations(source, list(range(6)))
    assert delta.shape == (6, source.fixed_draws or 5, 1, 8, 8)
    assert source.budget is not None
    assert bool(source.budget.contains(delta).all())
    x, _ = DATA.evaluate.batch(np.arange(6))
    moved = perturbed(x[:, None], delta)
    assert float(moved.min()) >= 0
    assert float(moved.max()) <= 1
    assert float(delta.abs().max()) > 0


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("budget", [Budget.linf(1e-4), Budget.l2(1e-3)], ids=str)
def test_rounding_is_no_breach_of_a_tiny_budget(spec: str, budget: Budget) -> None:
    (source,) = parse_sources(spec, budget)
    budget.require(perturbations(source, list(range(20))), spec)


@sources
def test_the_seed_decides(source: PerturbationSource) -> None:
    rows = list(range(6))
    first = perturbations(source, rows)
    assert torch.equal(first, perturbations(source, rows))
    assert not torch.equal(first, perturbations(source, rows, seed=1))


@sources
def test_an_input_does_not_see_its_batch(source: PerturbationSource) -> None:
    together = perturbations(source, [3, 4, 5])
    alone = perturbations(source, [4])
    assert torch.allclose(together[1], alone[0], atol=1e-6)


@sources
def test_counts_do_not_depend_on_the_batch_size(
    source: PerturbationSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise such small images would all be made together, whatever the micro-batch.
    monkeypatch.setattr(sys.modules["nppr.measure"], "NUMBERS_AT_ONCE", 1)
    x, _ = DATA.evaluate.batch(np.arange(8))
    tallies = [
        measure(
            source, prepare(classifier(), x, classes=10, micro_batch=size), DATA.evaluate, draws=20
        )
        for size in (1, 7, 64)
    ]
    for tally in tallies[1:]:
        assert np.array_equal(tally.right, tallies[0].right)
        assert tally.calls == tallies[0].calls


@sources
def test_mode_and_weights_are_left_alone(source: PerturbationSource) -> None:
    network = module().train()
    network.get_submodule("head").eval()
    modes = [layer.training for layer in network.modules()]
    weights = copy.deepcopy(network.state_dict())
    x, y = DATA.evaluate.batch(np.arange(4))
    with frozen(Classifier(network)) as model:
        source.perturb(model, x, y, block(source, (0, 1, 2, 3)))
    assert [layer.training for layer in network.modules()] == modes
    assert all(torch.equal(weights[name], value) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


@sources
def test_the_input_is_left_alone(source: PerturbationSource) -> None:
    x, y = DATA.evaluate.batch(np.arange(4))
    before = x.clone()
    with frozen(classifier()) as model:
        source.perturb(model, x, y, block(source, (0, 1, 2, 3)))
    assert torch.equal(x, before)
    assert not x.requires_grad


@sources
def test_it_says_what_it_is(source: PerturbationSource) -> None:
    assert source.metric in (Metric.PR, Metric.AR, Metric.NPPR)
    assert source.cost >= 1
    assert source.budget is not None
    if source.metric is not Metric.NPPR:  # which is not written but fitted
        (again,) = parse_sources(source.name, source.budget)
        assert again == source


def test_clean_does_nothing() -> None:
    source = Clean()
    assert source.budget is None
    assert not perturbations(source, [0, 1]).any()
