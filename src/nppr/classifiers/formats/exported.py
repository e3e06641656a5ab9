"""Programs of `torch.export`: `model.pt2`. They keep gradients in the input."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nppr.classifiers.formats.exported_safety import require_harmless
from nppr.classifiers.formats.fixed_batch import run_in_batches
from nppr.errors import ClassifierError

__all__ = ["ExportedModel", "load_exported"]


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """An exported program as a callable; `batch` is its batch size where that was fixed."""

    program: Any
    shape: tuple[int | None, ...]
    batch: int | None
    device: torch.device | None

    def __call__(self, x: Tensor) -> Any:
        expected = self.shape
        matches = len(expected) == x.ndim - 1 and all(
            wanted in (None, size) for wanted, size in zip(expected, x.shape[1:], strict=False)
        )
        if not matches:
            text = "(" + ", ".join("any" if n is None else str(n) for n in expected) + ")"
            raise ClassifierError(
                f"`model` was exported for images of shape {text}, got {tuple(x.shape[1:])}."
                " Resize the data or export the model again."
            )
        if self.batch is None:
            return self.program(x)
        return run_in_batches(self._logits, x, self.batch)

    def _logits(self, x: Tensor) -> Tensor:
        output = self.program(x)
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if logits is None and isinstance(output, dict):
            logits = output.get("logits")
        if not isinstance(logits, Tensor):
            raise ClassifierError(
                f"`model` must return a tensor of logits, got {type(output).__name__}."
            )
        return logits


def load_exported(path: Path) -> ExportedModel:
    """Read a `.pt2` file after checking that reading it runs no code of its own."""
    if not path.is_file():
        raise ClassifierError(f"`model` must be a file, got {str(path)!r}, which does not exist.")
    require_harmless(path)
    # A damaged file may make the reader fail in any way, and log a trace on the way.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.load(path)
            program = exported.module()
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ClassifierError(
            f"`model` must be a torch.export program, {str(path)!r} cannot be read: {reason}"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    batch, *shape = _input_shape(exported, path)
    tensors = [*exported.state_dict.values(), *exported.tensor_constants.values()]
    device = next((tensor.device for tensor in tensors), None)
    return ExportedModel(program, tuple(shape), batch, device)


def _input_shape(exported: Any, path: Path) -> list[int | None]:
    """Shape of the one input, None where it may vary."""
    names = list(exported.graph_signature.user_inputs)
    if len(names) != 1:
        raise ClassifierError(
            f"`model` must take one input, {str(path)!r} takes {len(names)}: {names}."
        )
    node = next(node for node in exported.graph.nodes if node.name == names[0])
    return [size if isinstance(size, int) else None for size in node.meta["val"].shape]
