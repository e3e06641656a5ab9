"""Programs of `torch.export`: `model.pt2`. They keep gradients in the input."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nppr.classifiers.formats.exported_safety import harmless_copy
from nppr.classifiers.formats.fixed_batch import require_shape, run_in_batches
from nppr.classifiers.wrap import find_logits
from nppr.errors import ClassifierError

__all__ = ["ExportedModel", "load_exported"]


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """An exported program as a callable; `batch` is the batch it was exported for, None for any."""

    program: Any
    shape: tuple[int | None, ...]
    batch: int | None
    device: torch.device | None

    def __call__(self, x: Tensor) -> Tensor:
        require_shape(x, self.shape)
        return run_in_batches(lambda batch: find_logits(self.program(batch)), x, self.batch)


def load_exported(path: Path) -> ExportedModel:
    """Read a `.pt2` file; a crafted one is refused before PyTorch sees it."""
    if not path.is_file():
        raise ClassifierError(f"`model` must be a file, got {str(path)!r}, which does not exist.")
    archive = harmless_copy(path)
    # A damaged file may make the reader fail in any way, and log a trace on the way.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.load(archive)
            program = exported.module()
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ClassifierError(
            f"`model` must be a torch.export program, {str(path)!r} cannot be read: {reason}"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    batch, shape = _input_shape(exported, path)
    tensors = [*exported.state_dict.values(), *exported.tensor_constants.values()]
    device = next((tensor.device for tensor in tensors), None)
    return ExportedModel(program, shape, batch, device)


def _input_shape(exported: Any, path: Path) -> tuple[int | None, tuple[int | None, ...]]:
    """Batch and shape of the one input, None where it may vary; a batch with a limit has the limit."""
    names = list(exported.graph_signature.user_inputs)
    if len(names) != 1:
        raise ClassifierError(
            f"`model` must take one input, {str(path)!r} takes {len(names)}: {names}."
        )
    node = next(node for node in exported.graph.nodes if node.name == names[0])
    batch, *shape = node.meta["val"].shape
    known = tuple(size if isinstance(size, int) else None for size in shape)
    if isinstance(batch, int):
        return batch, known
    limits = exported.range_constraints.get(batch.node.expr)
    most = None if limits is None or limits.upper > MOST_LIMITED else int(limits.upper)
    return most, known


MOST_LIMITED = 2**20
"""A batch that may be larger than this has no limit that matters."""
