"""ONNX files through onnxruntime (extra `onnx`). They have no gradients."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nppr.classifiers.formats.fixed_batch import require_shape, run_in_batches
from nppr.errors import ClassifierError

__all__ = ["OnnxModel", "load_onnx"]


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """An onnxruntime session as a callable; `batch` is its batch size where that is fixed."""

    session: Any
    input_name: str
    shape: tuple[int | None, ...]
    batch: int | None

    def __call__(self, x: Tensor) -> Tensor:
        require_shape(x, self.shape)
        return run_in_batches(self._run, x.detach(), self.batch)

    def _run(self, x: Tensor) -> Tensor:
        (logits,) = self.session.run(None, {self.input_name: x.float().cpu().numpy()})
        return torch.from_numpy(logits).to(x.device)


def load_onnx(path: Path) -> OnnxModel:
    """Open an ONNX file with one image input and one output."""
    if not path.is_file():
        raise ClassifierError(f"`model` must be a file, got {str(path)!r}, which does not exist.")
    # Its telemetry is on by default and writes a device id under the home folder.
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
    except Exception as error:  # its errors share no base but this
        reason = " ".join(str(error).split())[:200]
        raise ClassifierError(
            f"`model` must be an ONNX file, {str(path)!r} cannot be read: {reason}"
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
    batch, *shape = [size if isinstance(size, int) else None for size in inputs[0].shape]
    return OnnxModel(session, inputs[0].name, tuple(shape), batch)
