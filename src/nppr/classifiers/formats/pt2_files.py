"""Programs of `torch.export`: `model.pt2`. They keep gradients in the input."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch

from nppr.classifiers.classifier import find_logits, reason_of
from nppr.classifiers.formats.exported_safety import harmless_copy
from nppr.classifiers.formats.fixed_input import FixedInputModel
from nppr.errors import ClassifierError


def load_pt2(path: Path) -> FixedInputModel:
    """Read a `.pt2` file; a crafted one is refused before PyTorch sees it."""
    archive = harmless_copy(path)
    # A damaged file may make the reader fail in any way, and log a trace on the way.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.load(archive)
            program = exported.module()
    except Exception as error:
        raise ClassifierError(
            f"`model` must be a torch.export program, {str(path)!r} cannot be read:"
            f" {reason_of(error)}"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    batch, shape = _input_shape(exported, path)
    tensors = [*exported.state_dict.values(), *exported.tensor_constants.values()]
    device = next((tensor.device for tensor in tensors), None)
    return FixedInputModel(lambda x: find_logits(program(x)), shape, batch, device)


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
