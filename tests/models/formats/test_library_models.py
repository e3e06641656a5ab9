from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from nppr.errors import ClassifierError, WeightsError
from nppr.models import frozen, load_classifier


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small image classifier as transformers saves it."""
    transformers = pytest.importorskip("transformers", reason="the extra `hf`")
    path = tmp_path_factory.mktemp("hf")
    settings = transformers.ResNetConfig(
        num_channels=3, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5,
        layer_type="basic",
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.ResNetForImageClassification(settings).save_pretrained(path)
    (path / "preprocessor_config.json").write_text(
        '{"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6], "do_normalize": true}'
    )
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_local_folder_of_transformers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    classifier = load_classifier(f"hf:{folder}")
    assert classifier.mean == (0.1, 0.2, 0.3)
    assert classifier.std == (0.4, 0.5, 0.6)
    with frozen(classifier) as model, torch.no_grad():
        x = torch.rand(2, 3, 32, 32)
        assert model.logits(x).shape == (2, 5)
        assert model.features(x).shape == (2, 16)


@pytest.mark.filterwarnings("ignore")
def test_a_model_without_its_head_is_refused(folder: Path, tmp_path: Path) -> None:
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, tmp_path / "bare")
    weights = load_file(tmp_path / "bare" / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if "classifier" not in name}
    save_file(kept, tmp_path / "bare" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match="missing classifier"):
        load_classifier(f"hf:{tmp_path / 'bare'}")


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_does_not_say_how_to_normalise(folder: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(folder, tmp_path / "plain")
    (tmp_path / "plain" / "preprocessor_config.json").unlink()
    with pytest.raises(ClassifierError, match="`mean` and `std` must be given"):
        load_classifier(f"hf:{tmp_path / 'plain'}")
    assert load_classifier(f"hf:{tmp_path / 'plain'}", mean=0.0, std=1.0).mean == (0.0,)


@pytest.mark.filterwarnings("ignore")
def test_a_folder_that_is_no_model_is_named(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra `hf`")
    with pytest.raises(ClassifierError, match="could not be loaded"):
        load_classifier(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("prefix", "library", "need"),
    [
        ("hf", "transformers", r"nppr\[hf\]"),
        ("timm", "timm", "pip install timm"),
        ("torchvision", "torchvision.models", "pip install torchvision"),
    ],
)
def test_a_missing_library_is_named(
    prefix: str, library: str, need: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ClassifierError, match=need):
        load_classifier(f"{prefix}:resnet18")


def linear(classes: int | None) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes or 1000))


def test_timm_where_the_user_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def create_model(name: str, pretrained: bool, num_classes: int | None = None) -> nn.Module:
        asked.append({"name": name, "pretrained": pretrained, "classes": num_classes})
        module = linear(num_classes)
        module.pretrained_cfg = {"mean": (0.5,), "std": (0.25,)}  # type: ignore[assignment]
        return module

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    classifier = load_classifier("timm:small_net")
    assert (classifier.mean, classifier.std) == ((0.5,), (0.25,))
    load_classifier("timm:small_net", classes=7, mean=[0.0])
    assert asked == [
        {"name": "small_net", "pretrained": True, "classes": None},
        {"name": "small_net", "pretrained": True, "classes": None},
    ]


def test_torchvision_where_the_user_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    transforms = SimpleNamespace(mean=[0.5], std=[0.25])

    def get_model(name: str, weights: str | None, num_classes: int | None = None) -> nn.Module:
        assert (name, weights) == ("small_net", "DEFAULT")
        return linear(num_classes)

    models = SimpleNamespace(
        get_model=get_model,
        get_model_weights=lambda _: SimpleNamespace(
            DEFAULT=SimpleNamespace(transforms=lambda: transforms)
        ),
    )
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))
    classifier = load_classifier("torchvision:small_net")
    assert classifier.mean == (0.5,)
    assert classifier.forward(torch.rand(2, 1, 8, 8)).shape == (2, 1000)
