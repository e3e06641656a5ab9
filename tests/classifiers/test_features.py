import pytest
import torch
from torch import Tensor, nn

from nppr.classifiers import Classifier, frozen
from nppr.errors import ClassifierError, SpecError


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
