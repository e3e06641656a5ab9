from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nppr.classifiers import Classifier
from nppr.classifiers.checking import check_classifier
from nppr.classifiers.wrap import Quirks
from nppr.errors import ClassifierError


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 5))


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
    assert check_classifier(Classifier(model, mean=mean), x, 5) == expected
    assert torch.equal(x, before)
