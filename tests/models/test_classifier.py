"""Classifiers: normalisation, logits, features, and models of other libraries with gradients."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nppr
from helpers import Linear
from nppr.core.budget import Budget
from nppr.data import load_data
from nppr.errors import ClassifierError, GradientError, SpecError
from nppr.measuring.measurement import measure
from nppr.models import Backend, Classifier, check_classifier, frozen, is_out_of_memory, prepare
from nppr.models.classifier import Quirks
from nppr.sources import PGD, Uniform


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(4 * 16, 8), nn.ReLU(), nn.Linear(8, 5),
    )  # fmt: skip


def test_normalisation_is_folded_in() -> None:
    module = network().eval()
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    x = torch.rand(2, 3, 4, 4)
    by_hand = (x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    with frozen(Classifier(module, mean=mean, std=std)) as model:
        assert torch.allclose(model.logits(x), module(by_hand), atol=1e-6)
    with frozen(Classifier(module, mean=[0.5], std=[0.25])) as model:
        assert torch.allclose(model.logits(x), module((x - 0.5) / 0.25), atol=1e-6)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda logits: logits,
        lambda logits: {"logits": logits, "other": 1},
        lambda logits: SimpleNamespace(logits=logits),
    ],
)
def test_logits_are_found(wrap: Any) -> None:
    module = network().eval()
    x = torch.rand(2, 3, 4, 4)
    with frozen(Classifier(lambda batch: wrap(module(batch)))) as model:
        assert torch.equal(model.logits(x), module(x))


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (3, "got int"),
        ({"scores": 1}, "got dict"),
        (torch.zeros(2), "shape"),
        (None, "NoneType"),
        (torch.zeros(2, 2, dtype=torch.bool), "got booleans"),
        (torch.zeros(2, 2, dtype=torch.complex64), "got complex numbers"),
        (torch.zeros(2, 2).to_sparse(), "got a sparse tensor"),
        (torch.zeros(2, 2, device="meta"), "without data"),
    ],
)
def test_other_outputs_are_named(output: Any, message: str) -> None:
    with (
        frozen(Classifier(lambda _: output)) as model,
        pytest.raises(ClassifierError, match=message),
    ):
        model.logits(torch.rand(2, 1, 2, 2))


def test_mode_of_every_submodule_is_restored_exactly() -> None:
    module = network()
    module.train()
    module[1].eval()
    before = [layer.training for layer in module.modules()]
    with pytest.raises(KeyboardInterrupt), frozen(Classifier(module)) as model:
        assert not any(layer.training for layer in module.modules())
        first, second = model.logits(torch.ones(2, 3, 4, 4)), model.logits(torch.ones(2, 3, 4, 4))
        assert torch.equal(first, second)
        raise KeyboardInterrupt
    assert [layer.training for layer in module.modules()] == before


def test_gradients_are_those_of_the_input_and_of_nothing_else() -> None:
    w = torch.arange(16.0).view(1, 4, 4)
    module = Linear(w, 0.5)
    x = torch.rand(3, 1, 4, 4)
    with frozen(Classifier(module)) as model:
        gradient, logits = model.gradient(lambda logits: logits[:, 0], x)
        assert model.calls == 3
    assert torch.allclose(gradient, w.expand(3, 1, 4, 4))
    assert not logits.requires_grad
    assert not x.requires_grad
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_no_gradients_are_named() -> None:
    def without(x: Tensor) -> Tensor:
        return torch.zeros(len(x), 2)

    with frozen(Classifier(without)) as model, pytest.raises(GradientError, match="'without'"):
        model.gradient(lambda logits: logits[:, 0], torch.rand(1, 1, 2, 2))


def test_features_are_the_input_of_the_last_linear_layer() -> None:
    module = network().eval()
    x = torch.rand(2, 3, 4, 4)
    with frozen(Classifier(module)) as model:
        features = model.features(x)
    assert torch.equal(features, module[:-1](x))
    assert not any(layer._forward_pre_hooks for layer in module.modules())


def test_fingerprint_sees_weights_and_normalisation() -> None:
    module = network()
    first = Classifier(module).fingerprint()
    assert first == Classifier(network()).fingerprint()
    assert first != Classifier(module, mean=[0.5]).fingerprint()
    with torch.no_grad():
        module[0].weight[0, 0, 0, 0] += 1e-6  # type: ignore[index,operator]
    assert first != Classifier(module).fingerprint()
    assert Classifier(lambda x: x).fingerprint() is None


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [([float("nan")], None, "`mean`"), (None, [0.0], "`std`"), (None, [], "`std`")],
)
def test_bad_normalisation_is_named(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(ClassifierError, match=message):
        Classifier(network(), mean=mean, std=std)


def test_channels_must_match() -> None:
    classifier = Classifier(network(), mean=[0.5, 0.5])
    with frozen(classifier) as model, pytest.raises(ClassifierError, match="1 or 3 numbers"):
        model.logits(torch.rand(1, 3, 4, 4))


def test_a_model_that_fails_says_so_in_one_line() -> None:
    def small(x: torch.Tensor) -> torch.Tensor:
        raise KeyError(f"at most\n8 images, not {len(x)}")

    with frozen(Classifier(small)) as model, pytest.raises(ClassifierError, match="at most"):
        model.logits(torch.rand(9, 1, 2, 2))


def test_not_callable_is_named() -> None:
    with pytest.raises(ClassifierError, match="got int"):
        Classifier(3)  # type: ignore[arg-type]


class OutOfOrder(nn.Module):
    """Its last linear layer to run is not the last one it holds; one never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.body = nn.Linear(4, 6)
        self.unused = nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x.flatten(1)).relu())
        return logits


def test_the_last_linear_layer_is_the_one_that_runs_last() -> None:
    module = OutOfOrder()
    x = torch.rand(5, 1, 2, 2)
    with frozen(Classifier(module)) as model:
        assert torch.equal(model.features(x), module.body(x.flatten(1)).relu())
        assert model.calls == 5


def test_a_named_layer_gives_its_output() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    x = torch.rand(5, 1, 4, 4)
    with frozen(Classifier(module, features="1")) as model:
        assert torch.equal(model.features(x), module[:2](x).flatten(1))


def test_bad_layers_are_named() -> None:
    x = torch.rand(2, 1, 2, 2)
    with (
        frozen(Classifier(OutOfOrder(), features="boddy")) as model,
        pytest.raises(SpecError, match="Did you mean 'body'"),
    ):
        model.features(x)
    with (
        frozen(Classifier(OutOfOrder(), features="unused")) as model,
        pytest.raises(ClassifierError, match="layer 'unused' did not run"),
    ):
        model.features(x)


def test_hooks_are_removed_even_after_an_error() -> None:
    module = OutOfOrder()
    with frozen(Classifier(module)) as model, pytest.raises(ClassifierError):
        model.features(torch.rand(2, 1, 5, 5))
    assert not any(layer._forward_pre_hooks for layer in module.modules())


def test_callables_have_no_features() -> None:
    with (
        frozen(Classifier(lambda x: x.flatten(1))) as model,
        pytest.raises(ClassifierError, match="--feature-model"),
    ):
        model.features(torch.rand(2, 1, 2, 2))


def nan_model(x: Tensor) -> Tensor:
    return torch.full((len(x), 2), float("nan"))


@pytest.mark.parametrize(
    ("model", "classes", "message"),
    [
        (network(), 7, "expected 7 classes, got 5"),
        (nan_model, 2, "finite logits"),
        (nn.Linear(3, 2), 2, r"accept 2 images of shape \(3, 4, 4\)"),
    ],
)
def test_check_names_what_is_wrong(model: Any, classes: int, message: str) -> None:
    with pytest.raises(ClassifierError, match=message):
        check_classifier(Classifier(model), torch.rand(2, 3, 4, 4), classes)


def overwriting(x: Tensor) -> Tensor:
    return x.mul_(2).flatten(1)[:, :5]


def squeezing(x: Tensor) -> Tensor:
    return x.flatten(1)[:, :5].squeeze()


@pytest.mark.parametrize(
    ("model", "mean", "expected"),
    [
        (network(), None, Quirks()),
        (overwriting, None, Quirks(in_place=True)),
        (overwriting, 0.5, Quirks()),
        (squeezing, None, Quirks(needs_two=True)),
    ],
)
def test_what_care_a_model_needs_is_found(model: Any, mean: float | None, expected: Quirks) -> None:
    x = torch.rand(2, 3, 4, 4)
    before = x.clone()
    assert check_classifier(Classifier(model, mean=mean), x, 5) == replace(expected, classes=5)
    assert torch.equal(x, before)


def test_out_of_memory_is_known_on_any_device() -> None:
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: ..."))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))


def test_a_model_whose_classes_change_with_the_batch_is_an_error() -> None:
    def changing(x: Tensor) -> Tensor:
        return torch.zeros(len(x), 5 if len(x) <= 2 else 6)

    classifier = Classifier(changing)
    checked = classifier.with_quirks(check_classifier(classifier, torch.rand(2, 3, 4, 4), 5))
    with pytest.raises(ClassifierError, match=r"shape \(3, 5\), got \(3, 6\)"):
        checked.forward(torch.rand(3, 3, 4, 4))


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
