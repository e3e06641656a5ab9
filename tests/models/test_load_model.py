import hashlib
from pathlib import Path

import pytest
import torch
from torch import nn

from nppr.data import from_arrays, load_data
from nppr.errors import ClassifierError, SpecError, WeightsError
from nppr.models import Classifier, load_classifier
from nppr.models.zoo import ZOO
from nppr.system.records import write_tensors

DATA_OF_7 = from_arrays(torch.rand(14, 1, 8, 8), torch.arange(14) % 7)


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
        ({"arch": "resnet20"}, "Give --model resnet20"),
        ({}, "`classes` must be given"),
    ],
)
def test_metadata_is_checked(tmp_path: Path, metadata: dict[str, str], message: str) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, ZOO["digits-cnn"].build(10, 1).state_dict(), metadata)
    with pytest.raises((WeightsError, SpecError), match=message):
        load_classifier("digits-cnn", weights=path)


def test_classes_can_be_given(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, ZOO["digits-cnn"].build(7, 1).state_dict(), {})
    classifier = load_classifier("digits-cnn", weights=path, classes=7)
    assert classifier.forward(torch.rand(2, 1, 8, 8)).shape == (2, 7)


def test_the_datas_classes_are_taken_where_nobody_says(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_tensors(path, ZOO["digits-cnn"].build(7, 1).state_dict(), {})
    assert load_classifier("digits-cnn", weights=path, data=DATA_OF_7)
    with pytest.raises(WeightsError, match="must fit DigitsCNN"):
        load_classifier("digits-cnn", weights=path, data=load_data("digits"))


def test_random_weights_are_always_the_same() -> None:
    first, second = (
        load_classifier("resnet20", weights="random", data=DATA_OF_7) for _ in range(2)
    )
    assert first.fingerprint() == second.fingerprint()
    with pytest.raises(SpecError, match="`data` must be given"):
        load_classifier("resnet20", weights="random")


def test_weights_that_are_not_shipped_are_named() -> None:
    with pytest.raises(WeightsError, match="nppr train resnet20"):
        load_classifier("resnet20")


def test_the_stem_comes_from_the_weights_or_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    network = ZOO["resnet18"].build(3, 3, "small")
    write_tensors(path, network.state_dict(), {"stem": "small", "classes": "3"})
    assert load_classifier("resnet18", weights=path)
    with pytest.raises(WeightsError, match=r"conv1\.weight is"):
        load_classifier("resnet18", weights=path, stem="imagenet")
    with pytest.raises(SpecError, match="`stem` must be left out"):
        load_classifier("hf:somewhere", stem="small")


@pytest.mark.parametrize("name", ["resnet18", "resnet20"])
def test_forward_values_survive_a_round_trip(tmp_path: Path, name: str) -> None:
    network = ZOO[name].build(10, 3).eval()
    write_tensors(tmp_path / "w.safetensors", network.state_dict(), {"classes": "10"})
    torch.save(network.state_dict(), tmp_path / "w.pt")
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        expected = network(x)
        for file in ("w.safetensors", "w.pt"):
            loaded = load_classifier(name, weights=tmp_path / file, classes=10)
            assert torch.equal(loaded.forward(x), expected)


def test_the_hash_of_the_weights_file_is_kept(tmp_path: Path) -> None:
    shipped = load_classifier("digits-cnn")
    path = tmp_path / "w.safetensors"
    write_tensors(path, shipped.tensors(), {"classes": "10"})
    own = load_classifier("digits-cnn", weights=path)
    assert own.weights_sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert shipped.weights_sha256 not in (None, own.weights_sha256)
    assert load_classifier("digits-cnn", weights="random", data=DATA_OF_7).weights_sha256 is None
    assert load_classifier(nn.Flatten()).weights_sha256 is None
