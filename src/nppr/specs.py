"""Names and paths of models, weights and data, checked as text: nothing is loaded for it."""

from __future__ import annotations

import os
from pathlib import Path

from nppr.errors import ClassifierError, SpecError, WeightsError, unknown

NETWORKS = (
    "digits-cnn", "resnet18", "resnet50", "wide_resnet50_2", "vgg16", "resnet20", "resnet32",
    "resnet44", "resnet56", "resnet110",
)  # fmt: skip
"""Names of the zoo's networks."""

MODEL_FILES = (".pt2", ".onnx")
"""Suffixes of files that hold a whole model."""

RANDOM = "random"
"""In place of a weights file: an untrained network."""

AUTO, EAGER, INDUCTOR, ONNX = ENGINES = ("auto", "eager", "inductor", "onnx")
"""What computes forward passes that need no gradients."""

DATA = ("digits",)
"""Names of the data sets that need no download."""

HUB = "hf:"
"""In front of the name of a data set of the Hugging Face hub."""


def check_model(model: str, argument: str = "model") -> None:
    """Raise unless a model of this name can be looked for: a network, a file, or a prefix and a name.

    >>> check_model("resnet18"), check_model("timm:vit_tiny_patch16_224")
    (None, None)
    """
    place, colon, _ = model.rpartition(":")
    if model in NETWORKS:
        return
    if Path(model).suffix in MODEL_FILES:
        if not os.path.isfile(model):
            raise ClassifierError(
                f"`{argument}` must be a file, got {model!r}, which does not exist."
            )
    elif not colon:
        raise SpecError(
            f"{unknown(argument, model, NETWORKS)} It can also be a path/to/file.py:callable,"
            f" pkg.module:callable, {', '.join(f'model{suffix}' for suffix in MODEL_FILES)},"
            " hf:NAME, timm:NAME or torchvision:NAME."
        )
    elif place.endswith(".py") and not os.path.isfile(place):
        raise ClassifierError(
            f"`{argument}` must name a file, got {place!r}, which does not exist."
        )


def check_weights(weights: str | Path, argument: str = "weights") -> None:
    """Raise unless the file exists."""
    if not os.path.isfile(weights):
        raise WeightsError(
            f"`{argument}` must be a file, got {str(weights)!r}, which does not exist."
        )


def check_data(data: str | Path, argument: str = "data") -> None:
    """Raise unless it is a data set of ours, of the hub, or a path that exists."""
    stored = str(data) not in DATA and not str(data).startswith(HUB)
    # `Path.expanduser` raises for unknown users
    if stored and not (str(data) and os.path.exists(os.path.expanduser(data))):
        raise SpecError(
            f"{unknown(argument, str(data), DATA)} No file or folder of that name was found."
        )
