"""Weight files: safetensors, and PyTorch state dicts read with the strict reader.

Metadata of nppr's safetensors files (all text): `architecture`, `classes`, `mean`, `std` (numbers
separated by commas) and `stem`. A pickle that contains anything but plain tensors is refused and
never run. torch.save does not compress, so an archive that unpacks to far more than its size is
refused too.
"""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from nppr.errors import WeightsError, reason_of
from nppr.formats import require_weights
from nppr.system.bounded import OversizeError, program_limit, read_unpacked_size
from nppr.system.records import read_tensors
from nppr.system.specs import MOST_CLASSES

CONTAINERS = ("state_dict", "model_state", "model_state_dict", "model")
PREFIXES = ("module.", "model.", "backbone.")
ZIP_MAGIC, PICKLE_MAGIC = b"PK\x03\x04", b"\x80"
"""First bytes of a zip archive written by torch.save, and of a bare pickle of protocol 2 or later."""

COUNTER = "num_batches_tracked"
"""A counter of batch normalisation, which has no effect after training."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors by name, and the metadata of their file."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def architecture(self) -> str | None:
        """The network they belong to, or None if the file does not name it."""
        return self.metadata.get("architecture", self.metadata.get("arch"))

    @property
    def classes(self) -> int | None:
        """The number of classes, or None if the file does not state it."""
        text = self.metadata.get("classes")
        if text is None:
            return None
        if not text.isdecimal() or len(text) > 9 or not 2 <= int(text) <= MOST_CLASSES:
            raise WeightsError(
                f"`weights` metadata 'classes' must be a number from 2 to {MOST_CLASSES:,}, got"
                f" {text[:20]!r}."
            )
        return int(text)

    @property
    def channels(self) -> int:
        """The number of input channels, taken from the first convolution by name."""
        return next((t.shape[1] for _, t in sorted(self.tensors.items()) if t.ndim == 4), 1)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Return the numbers of a metadata entry such as `mean`, or None."""
        if name not in self.metadata:
            return None
        try:
            return tuple(float(number) for number in self.metadata[name].split(","))
        except ValueError as error:
            raise WeightsError(
                f"`weights` metadata {name!r} must be numbers separated by commas,"
                f" got {self.metadata[name]!r}."
            ) from error


def read_weights(path: str | Path) -> Weights:
    """Read a safetensors file or a PyTorch state dict."""
    path = Path(path)
    require_weights(path)
    with path.open("rb") as file:
        start = file.read(len(ZIP_MAGIC))
    if path.suffix == ".safetensors" or not start.startswith((ZIP_MAGIC, PICKLE_MAGIC)):
        weights = _read_safetensors(path)
    else:
        weights = _read_pickle(path, zipped=start == ZIP_MAGIC)
    _check_dense(weights.tensors, path)
    for name, tensor in weights.tensors.items():
        numbers = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # for 8-bit floats
        if tensor.is_floating_point() and not bool(torch.isfinite(numbers).all()):
            raise WeightsError(
                f"`weights` must be finite, got NaN or infinite ones in {name!r} of {path}."
            )
    return weights


def load_into(module: nn.Module, weights: Weights) -> None:
    """Copy the weights into a module; every name and shape must match."""
    own = module.state_dict()
    expected = {name: tensor for name, tensor in own.items() if COUNTER not in name}
    given = {name: tensor for name, tensor in weights.tensors.items() if COUNTER not in name}
    given = _without_prefix(given, set(expected))
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
    converted = {name: tensor.to(expected[name].dtype) for name, tensor in given.items()}
    module.load_state_dict({**own, **converted})


def _read_safetensors(path: Path) -> Weights:
    try:
        return Weights(*read_tensors(path))
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(
            f"`weights` must be a safetensors file or a PyTorch state dict, got {str(path)!r}:"
            f" {error}"
        ) from error


def _read_pickle(path: Path, *, zipped: bool) -> Weights:
    try:
        if zipped:
            limit = program_limit(path.stat().st_size, "Save the state dict again with torch.save.")
            limit.require(read_unpacked_size(path))
        with warnings.catch_warnings():  # warnings about the content of a damaged file
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OversizeError as error:
        raise WeightsError(f"`weights` file {str(path)!r} is refused: {error}") from error
    except pickle.UnpicklingError as error:
        raise WeightsError(
            f"`weights` file {str(path)!r} is refused, it holds more than plain tensors and"
            " reading it could run code. Save the state dict alone, or as safetensors."
        ) from error
    except Exception as error:  # damaged archives fail in any way
        raise WeightsError(
            f"`weights` file {str(path)!r} cannot be read: {reason_of(error)}"
        ) from error
    return Weights(_state_dict(content, path))


def _check_dense(tensors: dict[str, Tensor], path: Path) -> None:
    """Raise unless all tensors are plain, and together not far larger than the file.

    A view may repeat one number of the file billions of times.
    """
    for name, tensor in tensors.items():
        known = tensor.is_floating_point() or not (tensor.is_quantized or tensor.is_complex())
        if not known or tensor.is_meta or tensor.is_nested or tensor.layout is not torch.strided:
            raise WeightsError(
                f"`weights` must be dense tensors of real numbers, got another kind in {name!r} of"
                f" {str(path)!r}. Save the state dict of the network itself."
            )
    try:
        limit = program_limit(path.stat().st_size, "Save the state dict again with torch.save.")
        limit.require(sum(tensor.nbytes for tensor in tensors.values()))
    except OversizeError as error:
        raise WeightsError(f"`weights` file {str(path)!r} is refused: {error}") from error


def _state_dict(content: Any, path: Path) -> dict[str, Tensor]:
    """Return the state dict itself, or the one inside a usual container."""
    for name in CONTAINERS:
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            return _state_dict(content[name], path)
    if not isinstance(content, dict) or not content:
        raise WeightsError(
            f"`weights` must be a state dict, got {type(content).__name__} in {str(path)!r}."
        )
    strays = [str(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if strays:
        raise WeightsError(
            f"`weights` must hold tensors by name, got other things in {str(path)!r}:"
            f" {', '.join(strays[:5])}."
        )
    return {str(name): value for name, value in content.items()}


def _without_prefix(tensors: dict[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """Remove a prefix that wrappers add to all names, unless it belongs to the names."""
    if not tensors or wanted & set(tensors):
        return tensors
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            shorter = {name[len(prefix) :]: tensor for name, tensor in tensors.items()}
            return _without_prefix(shorter, wanted)
    return tensors
