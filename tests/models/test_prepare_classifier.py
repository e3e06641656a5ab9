import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.data import from_arrays
from nppr.errors import ClassifierError, SpecError
from nppr.models import (
    AGREEMENT,
    SPEEDUPS,
    Classifier,
    frozen,
    load_classifier,
    prepare,
    prepare_classifier,
)
from nppr.models.prepare_classifier import (
    MICRO_BATCHES,
    _best_micro_batch,
    _folded,
    usable_device,
)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)))
        logits: Tensor = self.head((y + self.second(y)).mean((2, 3)))
        return logits


class UsesView(Residual):
    """Fails in channels_last."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu_(self.norm(self.first(x)))
        logits: Tensor = self.head(self.second(y).view(len(x), 16, -1).mean(2))
        return logits


class BatchLogic(Residual):
    """Cannot be traced, and asks what its batch is."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] > 1 and float(x.mean()) >= 0:
            return torch.cat([self.forward(row[None]) for row in x])
        return super().forward(x)


class Randomised(Residual):
    """Tracing would freeze its randomness."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + random.random())


PROBE = torch.rand(32, 3, 8, 8)


@pytest.mark.parametrize("kind", [Residual, UsesView, BatchLogic])
def test_prepared_answers_are_those_of_the_model(kind: type[nn.Module]) -> None:
    torch.manual_seed(1)
    module = kind()
    before = copy.deepcopy(module.state_dict())
    module.train()
    ready = prepare(Classifier(module), PROBE, classes=4)
    with ready.frozen() as models, torch.no_grad():
        fast, original = models.fast.logits(PROBE), models.original.logits(PROBE)
    assert float((fast - original).abs().max()) <= AGREEMENT * float(original.abs().max())
    assert all(layer.training for layer in module.modules())
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert ready.original.model is module


def test_a_randomised_model_is_left_as_it_is() -> None:
    ready = prepare(Classifier(Randomised()), PROBE, classes=4, micro_batch=8)
    assert ready.speedups == ()
    assert ready.fast is ready.original


def test_folding_removes_the_batch_normalisation_and_keeps_features() -> None:
    torch.manual_seed(0)
    classifier = Classifier(Residual(), mean=[0.5], std=[0.2])
    classifier.module.norm.running_mean.uniform_()  # type: ignore[union-attr,operator]
    folded = _folded(classifier)
    assert folded.module is not None
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in folded.module.modules())
    with frozen(classifier) as ours, frozen(folded) as theirs:
        assert torch.allclose(ours.logits(PROBE), theirs.logits(PROBE), atol=1e-5)
        assert torch.allclose(ours.features(PROBE), theirs.features(PROBE), atol=1e-5)


def test_callables_are_prepared_too() -> None:
    ready = prepare(Classifier(lambda x: x.flatten(1)[:, :4]), PROBE, classes=4)
    assert ready.speedups == ()
    assert ready.micro_batch >= 16
    assert ready.images_per_second > 0


def test_micro_batch_can_be_given() -> None:
    assert prepare(load_classifier("digits-cnn"), torch.rand(4, 1, 8, 8), classes=10, micro_batch=5
    ).micro_batch == 5  # fmt: skip
    with pytest.raises(SpecError, match="`batch-size`"):
        prepare(load_classifier("digits-cnn"), PROBE, classes=10, micro_batch=0)


def test_without_an_accelerator_nothing_is_asked_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> torch.device:
        raise RuntimeError("as PyTorch 2.6 does where there is no accelerator")

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", missing)
    assert usable_device(None) == torch.get_default_device()


def test_an_accelerator_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("meta"))
    assert usable_device(None) == torch.device("meta")


def test_unusable_device_is_named() -> None:
    with pytest.raises(SpecError, match=r"`device`.*'nonsense'"):
        prepare(load_classifier("digits-cnn"), PROBE, classes=10, device="nonsense")


def test_wrong_classifier_is_named_before_anything_runs() -> None:
    with pytest.raises(ClassifierError, match="expected 3 classes, got 4"):
        prepare(Classifier(Residual()), PROBE, classes=3)


def test_a_named_feature_layer_still_runs_in_the_fast_form() -> None:
    images = from_arrays(torch.rand(20, 3, 32, 32), torch.arange(20) % 10)
    network = load_classifier("resnet20", weights="random", features="layer2", data=images)
    probe = torch.rand(8, 3, 32, 32)
    ready = prepare(network, probe, classes=10, micro_batch=8, speedups=SPEEDUPS)
    assert "folded" not in ready.speedups
    with ready.frozen() as models, torch.inference_mode():
        found, expected = models.fast.features(probe), models.original.features(probe)
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("speeds", "chosen", "tried"),
    [
        ((10, 20, 30, 40, 50, 60, 70), 1024, 7),
        ((10, 20, 20.5, 20.1, 90, 90, 90), 32, 4),  # two sizes in a row gain nothing
        ((10, 20, 20, 40, 15, 90, 90), 128, 5),  # one is slow
        ((10, 10.2, 10.4, 90, 90, 90, 90), 32, 3),  # the smallest within 3 % of the best
    ],
)
def test_the_search_for_a_micro_batch_ends_when_nothing_is_gained(
    speeds: tuple[float, ...], chosen: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def speed(_: Classifier, __: Tensor, size: int) -> float:
        asked.append(size)
        return 1000 * speeds[MICRO_BATCHES.index(size)]

    monkeypatch.setattr(prepare_classifier, "_speed", speed)
    found, _ = _best_micro_batch(Classifier(Residual()), PROBE, None)
    assert found == chosen
    assert len(asked) == tried


def test_a_micro_batch_that_does_not_fit_is_halved() -> None:
    def small(x: Tensor) -> Tensor:
        if len(x) > 9:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return x.flatten(1)[:, :4]

    assert prepare(Classifier(small), PROBE, classes=4).micro_batch == 8
    assert prepare(Classifier(small), PROBE, classes=4, micro_batch=36).micro_batch == 9


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 4 GB")])
def test_a_model_that_never_fits_into_memory_is_named(error: Exception) -> None:
    def hungry(_: Tensor) -> Tensor:
        raise error

    with pytest.raises(ClassifierError, match="`model` must fit into memory, 'hungry'"):
        prepare(Classifier(hungry), torch.rand(4, 1, 8, 8), classes=10)


def test_a_micro_batch_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(SpecError, match="`batch-size` must be at most 16,384, got 10,000,000"):
        prepare(
            Classifier(torch.nn.Flatten()), torch.rand(4, 1, 2, 2), classes=4, micro_batch=10**7
        )
    with pytest.raises(SpecError, match="`batch-size` must be at most 4,096"):
        large = torch.zeros(1).expand(4, 1, 256, 256)
        prepare(Classifier(torch.nn.Flatten()), large, classes=4, micro_batch=2**16)
