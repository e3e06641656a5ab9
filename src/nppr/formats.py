"""Formats of models and data by the names that people type, checked before anything is loaded.

This is the list of our own formats; installed packages add to it through entry points. A format is
imported when a model or data set of it is loaded, so a wrong name is found before PyTorch is loaded.
"""

from __future__ import annotations

import ast
import os
import zipfile
from pathlib import Path
from typing import Any

from nppr.errors import ClassifierError, RunFolderError, SpecError, WeightsError, unknown
from nppr.system.bounded import open_regular
from nppr.system.registry import Registry

NETWORKS = (
    "digits-cnn", "resnet18", "resnet50", "wide_resnet50_2", "vgg16", "resnet20", "resnet32",
    "resnet44", "resnet56", "resnet110",
)  # fmt: skip
"""Names of the zoo's networks."""

PYTHON = "python"
"""The format of models that Python code makes: `path/to/file.py:callable`, `pkg.module:callable`."""

MODEL_FORMATS: Registry[Any] = Registry(
    "model format",
    "nppr.models",
    "nppr.models.model_formats:ModelFormat",
    own={
        **dict.fromkeys(NETWORKS, "nppr.models.zoo:ZOO_MODELS"),
        PYTHON: "nppr.models.formats.python_models:PYTHON_CODE",
        ".pt2": "nppr.models.formats.pt2_files:PT2_FILE",
        ".onnx": "nppr.models.formats.library_models:ONNX_FILE",
        "hf:": "nppr.models.formats.library_models:HUGGING_FACE",
        "timm:": "nppr.models.formats.library_models:TIMM",
        "torchvision:": "nppr.models.formats.library_models:TORCHVISION",
    },
)
"""By the name of a model, the suffix of its file, or a prefix that ends with a colon."""

DEMO_DATA = "digits"
"""The name of the data set that needs no file."""

REPORT = "report.json"
"""The file of a run that a finished one has."""

DATA_FORMATS: Registry[Any] = Registry(
    "data format",
    "nppr.data",
    "nppr.data.data_formats:DataFormat",
    own={
        "cifar": "nppr.data.cifar_files:CIFAR",
        "tiny-imagenet": "nppr.data.image_folder:TINY_IMAGENET",
        "idx": "nppr.data.array_files:IDX_FILES",
        "npz": "nppr.data.array_files:NPZ_FILE",
        "parquet": "nppr.data.arrow_tables:PARQUET",
        "image-folder": "nppr.data.image_folder:IMAGE_FOLDER",
        "hf:": "nppr.data.arrow_tables:HUGGING_FACE_HUB",
    },
    claims=lambda form: form.suffixes,
)
"""By a name, which for data that have no path is a prefix that ends with a colon. Of several fallbacks
that match, the first is taken.
"""


def prefix_of(spec: str, formats: Registry[Any]) -> str | None:
    """Return the prefix of a model or data set that has no path, None if it has none that is known.

    >>> prefix_of("timm:vit_tiny_patch16_224", MODEL_FORMATS), prefix_of("m.py:make", MODEL_FORMATS)
    ('timm:', None)
    """
    head, colon, _ = spec.partition(":")
    return head + colon if colon and head + colon in formats else None


def model_format_of(model: str) -> str:
    """Return the name of the format of a model; Python code has any name with a colon.

    >>> [model_format_of(each) for each in ("resnet18", "m.onnx", "timm:vit", "m.py:make")]
    ['resnet18', '.onnx', 'timm:', 'python']
    """
    if model in MODEL_FORMATS and model not in (PYTHON, ""):
        return model
    suffix = Path(model).suffix
    if suffix and suffix in MODEL_FORMATS:
        return suffix
    return prefix_of(model, MODEL_FORMATS) or PYTHON


def require_model(model: str, argument: str = "model") -> None:
    """Raise unless a model of this name can be looked for: a network, a file, or a prefix and a name.

    >>> require_model("resnet18"), require_model("timm:vit_tiny_patch16_224")
    (None, None)
    """
    name = model_format_of(model)
    place, colon, _ = model.rpartition(":")
    if name.startswith("."):
        if not os.path.isfile(model):
            raise ClassifierError(
                f"`{argument}` must be a file, got {model!r}, which does not exist."
            )
    elif name != PYTHON:
        return
    elif not colon:
        raise _explain_model(model, argument)
    elif place.endswith(".py") and not os.path.isfile(place):
        raise ClassifierError(
            f"`{argument}` must name a file, got {place!r}, which does not exist."
        )


def names_code(model: str) -> bool:
    """Whether a model is made by running Python code that is named.

    >>> names_code("my_model.py:make"), names_code("timm:resnet18")
    (True, False)
    """
    return ":" in model and model_format_of(model) == PYTHON


def _explain_model(model: str, argument: str) -> SpecError | ClassifierError:
    """Return the error for a name that is not a model: bare code, another file, a typo."""
    suffix = Path(model).suffix.lower()
    if suffix == ".py":
        found = _list_definitions(model)
        listed = f" It defines {', '.join(found)}." if found else ""
        return SpecError(
            f"`{argument}` must name the function or class in {model!r} that makes the model.{listed}"
            f" Example: --{argument} {model}:{found[0] if found else 'make'}"
        )
    if suffix:
        formats = MODEL_FORMATS.own().values()
        known = {each: text for form in formats for each, text in form.other_files.items()}
        suffix = ".torchscript" if _is_torchscript(model) else suffix
        if suffix in known:
            advice = known[suffix].format(model)
            return ClassifierError(
                f"`{argument}` must be a model that can be run, got {model!r}: {advice}."
            )
    names = MODEL_FORMATS.names()
    networks = [each for each in names if each[0] != "." and each[-1] != ":" and each != PYTHON]
    files = [f"model{each}" for each in names if each.startswith(".")]
    *libraries, last = [f"{each}NAME" for each in names if each.endswith(":")]
    return SpecError(
        f"{unknown(argument, model, networks)} It can also be a path/to/file.py:callable,"
        f" pkg.module:callable, {', '.join([*files, *libraries])} or {last}."
    )


def _list_definitions(path: str) -> list[str]:
    """Return names of functions and classes of a Python file, which is not run."""
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


def require_weights(weights: str | Path, argument: str = "weights") -> None:
    """Raise unless it is a file."""
    if not os.path.isfile(weights):
        what = "is not a regular file" if os.path.exists(weights) else "does not exist"
        raise WeightsError(f"`{argument}` must be a file, got {str(weights)!r}, which {what}.")


def is_path(data: str | Path) -> bool:
    """Whether data are a file or folder, and not a data set that is known by its name.

    >>> is_path("digits"), is_path("hf:cifar10"), is_path("photos/")
    (False, False, True)
    """
    return str(data) != DEMO_DATA and prefix_of(str(data), DATA_FORMATS) is None


def require_data(data: str | Path, argument: str = "data") -> None:
    """Raise unless it is a data set with a known name or prefix, or a path that exists."""
    # `Path.expanduser` raises for unknown users
    if is_path(data) and not (str(data) and os.path.exists(os.path.expanduser(data))):
        raise SpecError(
            f"{unknown(argument, str(data), [DEMO_DATA])} No file or folder of that name was found."
        )


def run_folder_of(path: str | Path) -> Path:
    """Return the folder of a run from itself or from its `report.json`; raise if it is none."""
    folder = Path(path)
    if folder.name == REPORT and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        what = "which is a file" if folder.exists() else "which does not exist"
        raise RunFolderError(
            f"`run` must be the folder of a run, got {str(path)!r}, {what}."
            " Example: nppr report runs/mine"
        )
    return folder
