from pathlib import Path

import pytest
import torch
from torch import nn

from nppr.classifiers import Classifier, load_classifier
from nppr.classifiers.weights import Weights, write_weights
from nppr.classifiers.zoo import ZOO
from nppr.errors import ClassifierError, SpecError, WeightsError


def test_shipped_weights_bring_their_normalisation() -> None:
    classifier = load_classifier("digits-cnn")
    assert classifier.mean is not None
    assert classifier.std is not None
    assert load_classifier("digits-cnn", mean=[0.25]).mean == (0.25,)


def test_objects_are_wrapped() -> None:
    module = nn.Flatten()
    assert load_classifier(module, mean=[0.5]).mean == (0.5,)
    classifier = Classifier(module)
    assert load_classifier(classifier) is classifier
    with pytest.raises(ClassifierError, match="left out"):
        load_classifier(classifier, mean=[0.5])
    with pytest.raises(WeightsError, match="left out"):
        load_classifier(module, weights="w.safetensors")


def test_unknown_name_suggests() -> None:
    with pytest.raises(SpecError, match="Did you mean 'digits-cnn'"):
        load_classifier("digit-cnn")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"architecture": "other-net"}, "Give --model other-net"),
        ({"classes": "many"}, "'classes' must be a number"),
        ({}, "`classes` must be given"),
    ],
)
def test_metadata_is_checked(tmp_path: Path, metadata: dict[str, str], message: str) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, Weights(ZOO["digits-cnn"].build(10, 1).state_dict(), metadata))
    with pytest.raises((WeightsError, SpecError), match=message):
        load_classifier("digits-cnn", weights=path)


def test_classes_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, Weights(ZOO["digits-cnn"].build(7, 1).state_dict()))
    classifier = load_classifier("digits-cnn", weights=path, classes=7)
    assert classifier.forward(torch.rand(2, 1, 8, 8)).shape == (2, 7)
