"""From what the caller gives to a `Classifier`.

A new file format of models is a function from its path to a callable, and one line in `FILES`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nppr.data import Data
from nppr.errors import ClassifierError, SpecError, WeightsError
from nppr.models.classifier import Classifier
from nppr.models.formats.library_models import (
    LoadedModel,
    load_hugging_face,
    load_timm,
    load_torchvision,
)
from nppr.models.formats.onnx_files import load_onnx
from nppr.models.formats.pt2_files import load_pt2
from nppr.models.formats.python_models import load_python
from nppr.models.weight_files import load_into, read_weights
from nppr.models.zoo import ZOO, shipped_weights
from nppr.system.specs import RANDOM_WEIGHTS, require_model_spec

ModelSpec = str | nn.Module | Classifier | Callable[[Tensor], Any]

FILES = {".pt2": load_pt2, ".onnx": load_onnx}
LIBRARIES = {"hf": load_hugging_face, "timm": load_timm, "torchvision": load_torchvision}


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

    `mean` and `std` override those that come with the weights. A name of the zoo takes the weights
    shipped with nppr unless others are given; with `weights="random"` it is untrained. Classes and
    channels that neither the caller nor the weights state are those of `data`. `features` names the
    layer whose output counts as features.
    """
    if classes is not None and classes < 2:
        raise SpecError(f"`classes` must be a whole number >= 2, got {classes}.")
    found = _load(model, weights, mean, std, classes, stem, features, data)
    return found if data is None else found.for_data(data)


def _load(
    model: ModelSpec,
    weights: str | Path | None,
    mean: Sequence[float] | float | None,
    std: Sequence[float] | float | None,
    classes: int | None,
    stem: str | None,
    features: str | None,
    data: Data | None,
) -> Classifier:
    """The classifier, whatever data it is given."""
    if stem is not None and model not in ZOO:
        named = repr(model) if isinstance(model, str) else type(model).__name__
        raise SpecError(f"`stem` must be left out for {named}, it is for networks of the zoo.")
    if isinstance(model, Classifier):
        if weights is not None or mean is not None or std is not None or features is not None:
            raise ClassifierError(
                "`weights`, `mean`, `std` and `features` must be left out when `model` is a"
                " Classifier."
            )
        return model
    if not isinstance(model, str):
        if weights is not None:
            raise WeightsError("`weights` must be left out when `model` is already an object.")
        return Classifier(model, mean=mean, std=std, features=features)
    require_model_spec(model)
    prefix, _, rest = model.partition(":")
    name, fingerprint, file = model, None, weights
    if model in ZOO:
        found = _load_zoo(model, weights, classes, stem, data)
        file = shipped_weights(model) if weights is None else weights
    elif (path := Path(model)).suffix in FILES:
        found, name = _load_file(path, weights), path.stem
        fingerprint, file = _sha256(path), path
    elif prefix in LIBRARIES:
        # A library that is given a number of classes replaces the trained last layer by a random one.
        outputs = None if weights is None else classes or (data.classes if data else None)
        found, name = LIBRARIES[prefix](rest, weights is None, outputs), rest
        if not found.states_normalisation and mean is None and std is None:
            raise ClassifierError(
                f"`mean` and `std` must be given: {model} does not state a normalisation."
                " Give --mean 0 --std 1 for none."
            )
        found = _with_weights(found, weights, name)
    else:
        found = _with_weights(LoadedModel(load_python(model)), weights, name)
    return Classifier(
        found.model,
        mean=mean if mean is not None else found.mean,
        std=std if std is not None else found.std,
        name=name,
        features=features,
        fingerprint=fingerprint,
        weights=None if weights is None else Path(weights).name,
        weights_sha256=None if file is None or str(file) == RANDOM_WEIGHTS else _sha256(file),
    )


def _sha256(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _load_zoo(
    name: str, path: str | Path | None, classes: int | None, stem: str | None, data: Data | None
) -> LoadedModel:
    if path is not None and str(path) == RANDOM_WEIGHTS:
        if data is None:
            raise SpecError("`data` must be given for random weights.")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = ZOO[name].build(classes or data.classes, data.shape[0], stem)
        return LoadedModel(network.eval())
    chosen = path if path is not None else shipped_weights(name)
    if chosen is None:
        raise WeightsError(
            f"`weights` must be given for {name!r}: nppr ships none for it."
            f" Train them with: nppr train {name} --data ..."
        )
    weights = read_weights(chosen)
    if weights.architecture not in (None, name):
        raise WeightsError(
            f"`weights` must be of {name!r}, got {weights.architecture!r} in {str(chosen)!r}."
            f" Give --model {weights.architecture}."
        )
    classes = classes or weights.classes or (data.classes if data else None)
    if classes is None:
        raise SpecError("`classes` must be given: the weights' metadata does not state them.")
    channels = data.shape[0] if data else weights.channels
    stem = stem if stem is not None else weights.metadata.get("stem")
    network = ZOO[name].build(classes, channels, stem)
    load_into(network, weights)
    return LoadedModel(network.eval(), weights.numbers("mean"), weights.numbers("std"))


def _load_file(path: Path, weights: str | Path | None) -> LoadedModel:
    if weights is not None:
        raise WeightsError(f"`weights` must be left out for {str(path)!r}, which holds its own.")
    return LoadedModel(FILES[path.suffix](path))


def _with_weights(found: LoadedModel, path: str | Path | None, name: str) -> LoadedModel:
    """With the weights of a file in the model, and their normalisation, where one is given."""
    if path is None:
        return found
    if not isinstance(found.model, nn.Module):
        raise WeightsError(f"`weights` must be left out: {name!r} is not an nn.Module.")
    weights = read_weights(path)
    load_into(found.model, weights)
    mean, std = weights.numbers("mean") or found.mean, weights.numbers("std") or found.std
    return replace(found, mean=mean, std=std)
