"""A model of another library: NumPy, with gradients written by hand, beside the same PyTorch module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nppr
from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.measuring.measurement import measure
from nppr.models import Backend, Classifier, frozen, prepare
from nppr.sources import PGD, Uniform

SIDE, HIDDEN, CLASSES = 8, 32, 10


class NumpyNetwork:
    """`logits = W2 relu(W1 x)` in NumPy."""

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second
        self.backward_passes = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Logits, as features times the last layer."""
        return torch.from_numpy(self.features(x).numpy() @ self.second.T)

    def gradient(self, x: Tensor, upstream: Tensor) -> Tensor:
        """The chain rule, by hand."""
        self.backward_passes += 1
        active = self.features(x).numpy() > 0
        flat = ((upstream.numpy() @ self.second) * active) @ self.first
        return torch.from_numpy(flat).view(x.shape)

    def features(self, x: Tensor) -> Tensor:
        """The hidden layer."""
        return torch.from_numpy(np.maximum(x.flatten(1).numpy() @ self.first.T, 0))


def pair() -> tuple[NumpyNetwork, nn.Module]:
    """The same network in NumPy and in PyTorch, trained a little on the digits."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Flatten(),
        nn.Linear(SIDE * SIDE, HIDDEN, bias=False),
        nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES, bias=False),
    )
    fit = load_data("digits").fit
    x, y = fit.batch(np.arange(len(fit)))
    optimiser = torch.optim.Adam(module.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    weights = [parameter.detach().numpy() for parameter in module.parameters()]
    return NumpyNetwork(*weights), module


def test_logits_gradients_and_features_are_those_of_the_module() -> None:
    backend, module = pair()
    assert isinstance(backend, Backend)
    x, y = load_data("digits").evaluate.batch(np.arange(6))
    answers = []
    for model in (backend, module):
        with frozen(Classifier(model, mean=0.5, std=0.3)) as known:
            gradient, logits = known.gradient(lambda out: known.attacked_loss(out, y), x)
            features, again = known.features_and_logits(x)
            assert torch.equal(logits, again)
            answers.append((gradient, logits, features))
    for ours, theirs in zip(*answers, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
    assert backend.backward_passes == 1


def test_attacks_find_the_same_failures() -> None:
    backend, module = pair()
    data = load_data("digits").limit(inputs=60)
    x, _ = data.evaluate.batch(np.arange(8))
    budget = Budget.linf(0.15)
    tallies = []
    for model in (backend, module):
        ready = prepare(Classifier(model), x, classes=CLASSES, micro_batch=32)
        tallies.append([measure(source, ready, data.evaluate, draws=10).correct
                        for source in (Uniform(budget), PGD(budget))])  # fmt: skip
    assert np.array_equal(tallies[0][0], tallies[1][0])
    assert np.array_equal(tallies[0][1], tallies[1][1])
    assert tallies[0][1].sum() < tallies[0][0].sum() / 10


@pytest.mark.slow
def test_an_assessment_of_it_searches_with_gradients_and_features() -> None:
    backend, _ = pair()
    report = nppr.assess(
        backend,
        load_data("digits"),
        nppr.Budget.linf(0.1),
        sources="nppr,pgd",
        search=nppr.Search(dependency="joint", calls=6000, seeds=1),
        measure=nppr.Measure(inputs=60, draws=16),
    )
    assert "joint" in report.table()
    assert not {flag.id for flag in report.flags} & {"no-gradients", "by-scores"}
    assert backend.backward_passes > 10
