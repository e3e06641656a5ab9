"""Names and paths of models, weights and data, checked as text: nothing is loaded for it."""

from __future__ import annotations

import ast
import os
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from nppr.errors import ClassifierError, SpecError, WeightsError, unknown
from nppr.system.bounded import TOML_LIMIT, OversizeError, open_regular, read_text

NETWORKS = (
    "digits-cnn", "resnet18", "resnet50", "wide_resnet50_2", "vgg16", "resnet20", "resnet32",
    "resnet44", "resnet56", "resnet110",
)  # fmt: skip
"""Names of the zoo's networks."""

MODEL_FILES = (".pt2", ".onnx")
"""Suffixes of files that hold a whole model."""

MOST_CLASSES = 100_000
"""A network or a data set with more is a mistake, or made to fill the memory."""

RANDOM_WEIGHTS = "random"
"""In place of a weights file: an untrained network."""

EAGER, BFLOAT16 = ENGINES = ("eager", "bfloat16")
"""What computes forward passes that need no gradients."""

DATA_NAMES = ("digits",)
"""Names of the data sets that need no download."""

HUB_PREFIX = "hf:"
"""In front of the name of a data set of the Hugging Face hub."""


_LOADING = (
    "Write Python code that makes the model and loads the file, and name it:"
    " --model my_model.py:make"
)
_WEIGHTS_OF = (
    " If it holds a state dict, it is weights: --model NAME or my_model.py:make, with --weights {0!r}."
    f" If it holds a whole model, loading it would run code that it contains. {_LOADING}"
)
UNSUPPORTED_FILES = {
    **dict.fromkeys(
        (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".tar", ".joblib"),
        f"a pickle, which does not say what network it belongs to.{_WEIGHTS_OF}",
    ),
    ".safetensors": "weights without a network. Give --model NAME --weights {0!r}",
    **dict.fromkeys(
        (".ts", ".jit", ".torchscript"),
        "TorchScript, whose code runs as it is loaded. Export the model again with"
        f" torch.export.save(..., 'model.pt2'), or: {_LOADING[0].lower()}{_LOADING[1:]}",
    ),
    **dict.fromkeys(
        (".h5", ".keras", ".pb", ".tflite", ".mlmodel"),
        "a model of another library. Export it as .onnx",
    ),
}
"""Files that people have and that are no model here, by suffix: what they are, and what to do."""


def read_toml(argument: str, path: str | Path) -> dict[str, Any]:
    """What a TOML file states, which is given for this argument."""
    try:
        return tomllib.loads(read_text(path, TOML_LIMIT))
    except OSError as error:
        reason = error.strerror or str(error)
    except OversizeError as error:
        reason = str(error).rstrip(".")
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
    raise SpecError(
        f"`{argument}` must be a TOML file that can be read, got {str(path)!r}: {reason}."
        f" Example: {argument}.toml"
    )


def _refuse_file(model: str, argument: str) -> None:
    """Raise for a name that is a file of Python code or of another format, with what to do."""
    suffix = Path(model).suffix.lower()
    if suffix == ".py":
        found = _defined_in(model)
        example = found[0] if found else "make"
        listed = f" It defines {', '.join(found)}." if found else ""
        raise SpecError(
            f"`{argument}` must name the function or class in {model!r} that makes the model.{listed}"
            f" Example: --{argument} {model}:{example}"
        )
    if suffix in UNSUPPORTED_FILES:
        what = UNSUPPORTED_FILES[".ts" if _is_torchscript(model) else suffix].format(model)
        raise ClassifierError(
            f"`{argument}` must be a model that can be run, got {model!r}: {what}."
        )


def _defined_in(path: str) -> list[str]:
    """Functions and classes of a Python file, read without running it."""
    try:
        with open_regular(path) as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    return [name for name in names if not name.startswith("_")][:5]


def _is_torchscript(path: str) -> bool:
    """Whether a file is an archive with the code of a TorchScript module in it."""
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return False


def require_model_spec(model: str, argument: str = "model") -> None:
    """Raise unless a model of this name can be looked for: a network, a file, or a prefix and a name.

    >>> require_model_spec("resnet18"), require_model_spec("timm:vit_tiny_patch16_224")
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
        _refuse_file(model, argument)
        raise SpecError(
            f"{unknown(argument, model, NETWORKS)} It can also be a path/to/file.py:callable,"
            f" pkg.module:callable, {', '.join(f'model{suffix}' for suffix in MODEL_FILES)},"
            " hf:NAME, timm:NAME or torchvision:NAME."
        )
    elif place.endswith(".py") and not os.path.isfile(place):
        raise ClassifierError(
            f"`{argument}` must name a file, got {place!r}, which does not exist."
        )


def names_code(model: str) -> bool:
    """Whether a model is made by running Python code that is named.

    >>> names_code("my_model.py:make"), names_code("timm:resnet18")
    (True, False)
    """
    return ":" in model and not model.startswith(("hf:", "timm:", "torchvision:"))


def require_weights_file(weights: str | Path, argument: str = "weights") -> None:
    """Raise unless it is a file."""
    if not os.path.isfile(weights):
        what = "is not a regular file" if os.path.exists(weights) else "does not exist"
        raise WeightsError(f"`{argument}` must be a file, got {str(weights)!r}, which {what}.")


def require_data_spec(data: str | Path, argument: str = "data") -> None:
    """Raise unless it is a data set of ours, of the hub, or a path that exists."""
    stored = str(data) not in DATA_NAMES and not str(data).startswith(HUB_PREFIX)
    # `Path.expanduser` raises for unknown users
    if stored and not (str(data) and os.path.exists(os.path.expanduser(data))):
        raise SpecError(
            f"{unknown(argument, str(data), DATA_NAMES)} No file or folder of that name was found."
        )
