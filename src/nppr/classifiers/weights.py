"""Weights files: safetensors, with the facts needed to use them in the metadata.

Metadata of our files (all text): `architecture`, `classes`, `mean`, `std` (numbers separated by
commas). Nothing is ever unpickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nppr.errors import WeightsError
from nppr.tensor_files import write_tensors

__all__ = ["Weights", "load_into", "read_weights", "write_weights"]


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors by name, and what the file says about them."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Numbers of a metadata entry such as `mean`, or None."""
        if name not in self.metadata:
            return None
        try:
            return tuple(float(part) for part in self.metadata[name].split(","))
        except ValueError as error:
            raise WeightsError(
                f"`weights` metadata {name!r} must be numbers separated by commas,"
                f" got {self.metadata[name]!r}."
            ) from error


def read_weights(path: str | Path) -> Weights:
    """Read a safetensors file."""
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"`weights` must be a file, got {str(path)!r}, which does not exist.")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(
            f"`weights` must be a safetensors file, got {str(path)!r}: {error}"
        ) from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise WeightsError(f"`weights` must be finite, got NaN or Inf in {name!r} of {path}.")
    return Weights(tensors, metadata)


def write_weights(path: str | Path, weights: Weights) -> None:
    """Write a safetensors file, whole or not at all."""
    write_tensors(Path(path), weights.tensors, weights.metadata)


def load_into(module: nn.Module, weights: Weights) -> None:
    """Copy the weights into a module; every name and shape must match."""
    expected, given = module.state_dict(), weights.tensors
    problems = [f"missing {name}" for name in expected if name not in given]
    problems += [f"unexpected {name}" for name in given if name not in expected]
    problems += [
        f"{name} is {tuple(given[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in expected
        if name in given and given[name].shape != expected[name].shape
    ]
    if problems:
        shown = "; ".join(problems[:6]) + (f"; and {len(problems) - 6} more" * (len(problems) > 6))
        raise WeightsError(f"`weights` must fit {type(module).__name__}: {shown}.")
    module.load_state_dict(
        {name: tensor.to(expected[name].dtype) for name, tensor in given.items()}
    )
