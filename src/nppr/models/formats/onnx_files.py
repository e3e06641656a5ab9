"""ONNX files through onnxruntime (extra `onnx`). They have no gradients."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from nppr.errors import ClassifierError, reason_of
from nppr.models.formats.fixed_input import FixedInputModel
from nppr.models.model_formats import LoadedModel, ModelFormat


def load_onnx(path: str | Path) -> FixedInputModel:
    """Open an ONNX file with one image input and one output."""
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


ONNX_FILE = ModelFormat(
    lambda wanted: LoadedModel(load_onnx(wanted.name)),
    has_weights=True,
    other_files=dict.fromkeys(
        (".h5", ".keras", ".pb", ".tflite", ".mlmodel"),
        "a model of another library. Export it as .onnx",
    ),
)
