"""From what the caller gives to a `Classifier`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from nppr.classifiers.weights import Weights, load_into, read_weights
from nppr.classifiers.wrap import Classifier
from nppr.classifiers.zoo import ZOO, shipped_weights
from nppr.errors import ClassifierError, SpecError, WeightsError, unknown

__all__ = ["ModelSpec", "load_classifier"]

ModelSpec = str | nn.Module | Classifier | Callable[[Tensor], Any]


def load_classifier(
    model: ModelSpec,
    *,
    weights: str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    classes: int | None = None,
    channels: int = 1,
) -> Classifier:
    """A name of the zoo, a module, a callable or a `Classifier`.

    `mean` and `std` override those in the weights' metadata. A name without `weights` takes the
    weights shipped with nppr.
    """
    if isinstance(model, Classifier):
        if weights is not None or mean is not None or std is not None:
            raise ClassifierError(
                "`weights`, `mean` and `std` must be left out when `model` is a Classifier."
            )
        return model
    if not isinstance(model, str):
        if weights is not None:
            raise WeightsError("`weights` must be left out when `model` is an object already.")
        return Classifier(model, mean=mean, std=std)
    if model not in ZOO:
        raise unknown("model", model, ZOO)
    loaded = _weights_for(model, weights)
    number = classes or _classes_of(loaded)
    if number is None:
        raise SpecError("`classes` must be given: the weights' metadata does not say.")
    module = ZOO[model].build(number, channels)
    load_into(module, loaded)
    return Classifier(
        module.eval(),
        mean=mean if mean is not None else loaded.numbers("mean"),
        std=std if std is not None else loaded.numbers("std"),
        name=model,
    )


def _weights_for(model: str, path: str | Path | None) -> Weights:
    chosen = path if path is not None else shipped_weights(model)
    if chosen is None:
        raise WeightsError(
            f"`weights` must be given for {model!r}: nppr ships none for it."
            f" Train them with: nppr train {model}"
        )
    weights = read_weights(chosen)
    architecture = weights.metadata.get("architecture", model)
    if architecture != model:
        raise WeightsError(
            f"`weights` must be of {model!r}, got {architecture!r} in {str(chosen)!r}."
            f" Give --model {architecture}."
        )
    return weights


def _classes_of(weights: Weights) -> int | None:
    text = weights.metadata.get("classes")
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 2:
        raise WeightsError(f"`weights` metadata 'classes' must be a number >= 2, got {text!r}.")
    return int(text)
