"""From what the caller gives to a `Classifier`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nppr.classifiers.weights import Weights, load_into, read_weights
from nppr.classifiers.wrap import Classifier
from nppr.classifiers.zoo import ZOO, shipped_weights
from nppr.data import Data
from nppr.errors import ClassifierError, SpecError, WeightsError, unknown

__all__ = ["ModelSpec", "load_classifier"]

ModelSpec = str | nn.Module | Classifier | Callable[[Tensor], Any]

FORMATS = (
    "a path/to/file.py:callable, pkg.module:callable, model.pt2, model.onnx,"
    " hf:NAME, timm:NAME or torchvision:NAME"
)
FILES = (".pt2", ".onnx")
RANDOM = "random"
"""In place of a weights file: an untrained network."""


@dataclass(frozen=True)
class _Wish:
    """What the caller said beside the model."""

    weights: str | Path | None
    mean: Sequence[float] | float | None
    std: Sequence[float] | float | None
    classes: int | None
    data: Data | None
    stem: str | None
    features: str | None

    @property
    def weights_name(self) -> str | None:
        return None if self.weights is None else Path(self.weights).name

    @property
    def data_classes(self) -> int | None:
        return None if self.data is None else self.data.classes


def load_classifier(
    model: ModelSpec,
    *,
    weights: str | Path | None = None,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    classes: int | None = None,
    stem: str | None = None,
    features: str | None = None,
    data: Data | None = None,
) -> Classifier:
    """A name of the zoo, a file, a name of a model library, Python code, or an object.

    `mean` and `std` override those that come with the weights. A name of the zoo without `weights`
    takes the weights shipped with nppr, with `weights="random"` it is untrained. Classes and channels
    that neither the caller nor the weights state are those of `data`. `features` names the layer to
    read features from.
    """
    if classes is not None and classes < 2:
        raise SpecError(f"`classes` must be a whole number >= 2, got {classes}.")
    wish = _Wish(weights, mean, std, classes, data, stem, features)
    if isinstance(model, Classifier):
        if weights is not None or mean is not None or std is not None or features is not None:
            raise ClassifierError(
                "`weights`, `mean`, `std` and `features` must be left out when `model` is a"
                " Classifier."
            )
        return model
    if not isinstance(model, str):
        if weights is not None:
            raise WeightsError("`weights` must be left out when `model` is an object already.")
        return Classifier(model, mean=mean, std=std, features=features)
    if stem is not None and model not in ZOO:
        raise SpecError(f"`stem` must be left out for {model!r}, it is for networks of the zoo.")
    return _by_name(model, wish)


def _by_name(model: str, wish: _Wish) -> Classifier:
    prefix, colon, rest = model.partition(":")
    if model in ZOO:
        return _from_zoo(model, wish)
    if model.endswith(FILES):
        return _from_file(Path(model), wish)
    if colon and prefix in ("hf", "timm", "torchvision"):
        return _from_library(prefix, rest, wish)
    if colon:
        from nppr.classifiers.formats.python_code import load_python

        return _with_weights(load_python(model), model, wish)
    error = unknown("model", model, ZOO)
    raise SpecError(f"{error} It can also be {FORMATS}.")


def _from_zoo(model: str, wish: _Wish) -> Classifier:
    if wish.weights is not None and str(wish.weights) == RANDOM:
        return _random(model, wish)
    weights = _zoo_weights(model, wish.weights)
    classes = wish.classes or weights.classes or wish.data_classes
    if classes is None:
        raise SpecError("`classes` must be given: the weights' metadata does not say.")
    stem = wish.stem if wish.stem is not None else weights.metadata.get("stem")
    channels = wish.data.shape[0] if wish.data else weights.channels
    module = ZOO[model].build(classes, channels, stem)
    load_into(module, weights)
    return Classifier(
        module.eval(),
        mean=wish.mean if wish.mean is not None else weights.numbers("mean"),
        std=wish.std if wish.std is not None else weights.numbers("std"),
        name=model,
        features=wish.features,
        weights=wish.weights_name,
    )


def _random(model: str, wish: _Wish) -> Classifier:
    """An untrained network, for trying things out: always the same one."""
    if wish.data is None:
        raise SpecError("`data` must be given for random weights.")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        channels = wish.data.shape[0]
        module = ZOO[model].build(wish.classes or wish.data.classes, channels, wish.stem)
    return Classifier(
        module.eval(),
        mean=wish.mean,
        std=wish.std,
        name=model,
        features=wish.features,
        weights=wish.weights_name,
    )


def _zoo_weights(model: str, path: str | Path | None) -> Weights:
    chosen = path if path is not None else shipped_weights(model)
    if chosen is None:
        raise WeightsError(
            f"`weights` must be given for {model!r}: nppr ships none for it."
            f" Train them with: nppr train {model} --data ..."
        )
    weights = read_weights(chosen)
    if weights.architecture not in (None, model):
        raise WeightsError(
            f"`weights` must be of {model!r}, got {weights.architecture!r} in {str(chosen)!r}."
            f" Give --model {weights.architecture}."
        )
    return weights


def _from_file(path: Path, wish: _Wish) -> Classifier:
    if wish.weights is not None:
        raise WeightsError(f"`weights` must be left out for {str(path)!r}, it holds its own.")
    if path.suffix == ".pt2":
        from nppr.classifiers.formats.exported import load_exported

        model: Callable[[Tensor], Any] = load_exported(path)
    else:
        from nppr.classifiers.formats.onnx import load_onnx

        model = load_onnx(path)
    return Classifier(
        model,
        mean=wish.mean,
        std=wish.std,
        name=path.stem,
        features=wish.features,
        fingerprint=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def _from_library(library: str, name: str, wish: _Wish) -> Classifier:
    from nppr.classifiers.formats.libraries import load_hugging_face, load_timm, load_torchvision

    pretrained = wish.weights is None
    # A library that is told a number of classes replaces the trained last layer by a random one.
    classes = None if pretrained else wish.classes or wish.data_classes
    if library == "hf":
        found = load_hugging_face(name)
    elif library == "timm":
        found = load_timm(name, pretrained=pretrained, classes=classes)
    else:
        found = load_torchvision(name, pretrained=pretrained, classes=classes)
    if not found.says_normalisation and wish.mean is None and wish.std is None:
        raise ClassifierError(
            f"`mean` and `std` must be given: {library}:{name} does not say how to normalise."
            " Give --mean 0 --std 1 for none."
        )
    return _with_weights(found.module, name, wish, found.mean, found.std)


def _with_weights(
    model: Any,
    name: str,
    wish: _Wish,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Classifier:
    """A model object, with the weights of a file in it where one is given.

    A normalisation is the caller's, else that of the weights, else that of the model's library.
    """
    if wish.weights is not None:
        if not isinstance(model, nn.Module):
            raise WeightsError(f"`weights` must be left out: {name!r} is no module to load into.")
        weights = read_weights(wish.weights)
        load_into(model, weights)
        mean, std = weights.numbers("mean") or mean, weights.numbers("std") or std
    return Classifier(
        model,
        mean=wish.mean if wish.mean is not None else mean,
        std=wish.std if wish.std is not None else std,
        name=name,
        features=wish.features,
        weights=wish.weights_name,
    )
