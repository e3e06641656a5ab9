"""Load a `Classifier` from a name, a file, Python code or an object."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from nppr.data import Data
from nppr.errors import ClassifierError, SpecError, WeightsError
from nppr.formats import MODEL_FORMATS, model_format_of, require_model
from nppr.models.classifier import Classifier
from nppr.models.model_formats import LoadedModel, ModelFormat, ModelRequest
from nppr.models.weight_files import load_into, read_weights
from nppr.models.zoo import ZOO

ModelSpec = str | nn.Module | Classifier | Callable[[Tensor], Any]


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
    """Load a model by name, file or Python code, or wrap an object.

    `mean` and `std` override the normalisation of the weights. A network of the zoo uses the weights
    shipped with nppr unless others are given; with `weights="random"` it is untrained. `data` state
    classes and channels if nothing else does. `features` names the layer whose output are features.
    """
    if classes is not None and classes < 2:
        raise SpecError(f"`classes` must be a whole number >= 2, got {classes}.")
    if stem is not None and model not in ZOO:
        named = repr(model) if isinstance(model, str) else type(model).__name__
        raise SpecError(f"`stem` must be left out for {named}, it is for networks of the zoo.")
    if isinstance(model, Classifier):
        if weights is not None or mean is not None or std is not None or features is not None:
            raise ClassifierError(
                "`weights`, `mean`, `std` and `features` must be left out when `model` is a"
                " Classifier."
            )
        found = model
    elif isinstance(model, str):
        require_model(model)
        known = model_format_of(model)
        name = model.removeprefix(known) if known.endswith(":") else model
        request = ModelRequest(name, weights, classes, stem, data)
        found = _load_named(model, known, request, mean, std, features)
    elif weights is not None:
        raise WeightsError("`weights` must be left out when `model` is already an object.")
    else:
        found = Classifier(model, mean=mean, std=std, features=features)
    return found if data is None else found.for_data(data)


def _load_named(
    model: str,
    known: str,
    request: ModelRequest,
    mean: Sequence[float] | float | None,
    std: Sequence[float] | float | None,
    features: str | None,
) -> Classifier:
    """Load a model of a known format, with its weights and its normalisation."""
    form: ModelFormat = MODEL_FORMATS[known]
    if form.has_weights and request.weights is not None:
        raise WeightsError(f"`weights` must be left out for {model!r}, which holds its own.")
    with MODEL_FORMATS.guarded(form):
        found = form.load(request)
    if not found.states_normalisation and mean is None and std is None:
        raise ClassifierError(
            f"`mean` and `std` must be given: {model} does not state a normalisation."
            " Give --mean 0 --std 1 for none."
        )
    if request.weights is not None and model not in ZOO:
        found = _with_weights(found, request.weights, request.name)
    own = Path(model) if known.startswith(".") else None
    file = own or found.weights
    digest = None
    if file is not None:
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    return Classifier(
        found.model,
        mean=mean if mean is not None else found.mean,
        std=std if std is not None else found.std,
        name=request.name if own is None else own.stem,
        features=features,
        fingerprint=digest if own else None,
        weights=None if request.weights is None else Path(request.weights).name,
        weights_sha256=digest,
    )


def _with_weights(found: LoadedModel, path: str | Path, name: str) -> LoadedModel:
    """Load the weights of a file into the model, and use the normalisation that they state."""
    if not isinstance(found.model, nn.Module):
        raise WeightsError(f"`weights` must be left out: {name!r} is not an nn.Module.")
    weights = read_weights(path)
    load_into(found.model, weights)
    mean, std = weights.numbers("mean") or found.mean, weights.numbers("std") or found.std
    return replace(found, mean=mean, std=std, weights=Path(path))
