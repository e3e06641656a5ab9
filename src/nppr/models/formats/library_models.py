"""Models of other libraries: `hf:`, `timm:`, `torchvision:` and ONNX files."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nppr.errors import ClassifierError, WeightsError, reason_of
from nppr.models.formats.array_models import FixedInputModel
from nppr.models.model_formats import LoadedModel, ModelFormat, ModelRequest


def load_hugging_face(wanted: ModelRequest) -> LoadedModel:
    """Load an image classifier of transformers, by name or from a local folder (extra `hf`).

    Weights are read from safetensors only, and no code from the repository is run.
    """
    name = wanted.name
    transformers = _library("transformers", "hf:", "the extra `hf`: pip install 'nppr[hf]'")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with _loading(f"hf:{name}"):
        module, loading = transformers.AutoModelForImageClassification.from_pretrained(
            name, use_safetensors=True, trust_remote_code=False, output_loading_info=True
        )
    # By default, the library would fill missing weights with random numbers.
    kinds = ("missing", "unexpected", "mismatched")
    problems = [f"{kind} {key}" for kind in kinds for key in loading[f"{kind}_keys"]]
    if problems:
        raise WeightsError(f"`model` 'hf:{name}' must be complete: {'; '.join(problems[:6])}.")
    settings = _preprocessor(transformers, name)
    if settings is None:
        return LoadedModel(module.eval(), states_normalisation=False)
    return LoadedModel(module.eval(), settings.get("image_mean"), settings.get("image_std"))


def load_timm(wanted: ModelRequest) -> LoadedModel:
    """Load a network of timm, if it is installed."""
    timm = _library("timm", "timm:", "timm: pip install timm")
    name, pretrained = wanted.name, wanted.weights is None
    with _loading(f"timm:{name}"):
        module = timm.create_model(name, pretrained=pretrained, **_classes_of(wanted))
    settings = getattr(module, "pretrained_cfg", None) or {}
    return LoadedModel(module.eval(), settings.get("mean"), settings.get("std"))


def load_torchvision(wanted: ModelRequest) -> LoadedModel:
    """Load a network of torchvision, if it is installed."""
    models = _library("torchvision.models", "torchvision:", "torchvision: pip install torchvision")
    name, pretrained = wanted.name, wanted.weights is None
    with _loading(f"torchvision:{name}"):
        module = models.get_model(
            name, weights="DEFAULT" if pretrained else None, **_classes_of(wanted)
        )
        transforms = models.get_model_weights(name).DEFAULT.transforms() if pretrained else None
    mean, std = (getattr(transforms, name, None) for name in ("mean", "std"))
    return LoadedModel(module.eval(), mean, std)


def load_onnx(path: str | Path) -> FixedInputModel:
    """Open an ONNX file with one image input and one output (extra `onnx`); it has no gradients."""
    # By default, its telemetry writes a device id under the home folder.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise ClassifierError(
            "`model` is an ONNX file, which needs the extra `onnx`: pip install 'nppr[onnx]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=onnxruntime.get_available_providers()
        )
    except Exception as error:  # its errors have no common base except this
        raise ClassifierError(
            f"`model` must be an ONNX file, {str(path)!r} cannot be read: {reason_of(error)}"
        ) from error
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1:
        raise ClassifierError(
            f"`model` must have one input and one output, {str(path)!r} has {len(inputs)} and"
            f" {len(outputs)}. Export it with its logits as the only output."
        )
    if inputs[0].type != "tensor(float)":
        raise ClassifierError(
            f"`model` must take 32-bit floats, {str(path)!r} takes {inputs[0].type}."
        )

    def run(x: Tensor) -> Tensor:
        (logits,) = session.run(None, {inputs[0].name: x.detach().float().cpu().numpy()})
        return torch.from_numpy(logits).to(x.device)

    batch, *shape = [size if isinstance(size, int) else None for size in inputs[0].shape]
    return FixedInputModel(run, tuple(shape), batch, fewest=batch or 1)


def _classes_of(wanted: ModelRequest) -> dict[str, int]:
    """Return the number of classes, which would replace a trained last layer by a random one."""
    classes = wanted.classes or (wanted.data.classes if wanted.data else None)
    return {} if wanted.weights is None or classes is None else {"num_classes": classes}


def _library(module: str, prefix: str, need: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:  # a library that cannot load may fail in any way
        raise ClassifierError(f"`model` {prefix}... needs {need} ({error})") from error


@contextmanager
def _loading(spec: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a library that loads a model may fail in any way
        raise ClassifierError(
            f"`model` {spec!r} could not be loaded: {reason_of(error)}"
        ) from error


def _preprocessor(transformers: Any, name: str) -> dict[str, Any] | None:
    """Return the image processor's settings: empty if it does not normalise, None if it is missing."""
    local = Path(name) / "preprocessor_config.json"
    try:
        if Path(name).is_dir():
            settings = json.loads(local.read_text()) if local.is_file() else None
        else:
            settings = transformers.AutoImageProcessor.from_pretrained(name).to_dict()
    except (OSError, ValueError):
        return None
    if not isinstance(settings, dict):
        return None
    return settings if settings.get("do_normalize", True) else {}


HUGGING_FACE = ModelFormat(load_hugging_face)
TIMM = ModelFormat(load_timm)
TORCHVISION = ModelFormat(load_torchvision)
ONNX_FILE = ModelFormat(
    lambda wanted: LoadedModel(load_onnx(wanted.name)),
    has_weights=True,
    other_files=dict.fromkeys(
        (".h5", ".keras", ".pb", ".tflite", ".mlmodel"),
        "a model of another library. Export it as .onnx",
    ),
)
