"""A distribution on disk: tensors in safetensors, everything else beside them in versioned JSON.

The pair NAME.safetensors and NAME.json is self-contained: budget, admissible set, normalisation and
features of the classifier, classes, the history of the fit. Nothing in it is run or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nppr.budget import Budget
from nppr.distributions.distribution import Distribution, Rule
from nppr.distributions.settings import Family
from nppr.errors import DistributionError, NpprError
from nppr.tensor_files import write_tensors

__all__ = ["Saved", "load_distribution", "save_distribution", "sealed"]

FORMAT = 1
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, MemoryError,
    RuntimeError, SafetensorError,
)  # fmt: skip
"""What a crafted or damaged file can cause while it is read."""


class Saved(BaseModel):
    """What NAME.json holds. `fit` says how it was found, `diagnostics` what it looks like."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    nppr_version: str
    budget: dict[str, Any]
    family: dict[str, Any]
    rule: Rule
    shape: tuple[int, int, int]
    classes: int
    class_names: tuple[str, ...]
    features: int
    classifier: dict[str, Any]
    data: dict[str, Any]
    fit: dict[str, Any]
    diagnostics: dict[str, Any]
    checksum: str = ""

    def stated_budget(self) -> Budget:
        """The budget it was fitted in."""
        return Budget.parse(self.budget["norm"], self.budget["radius"])


def save_distribution(path: Path, distribution: Distribution, saved: Saved) -> None:
    """Write PATH.safetensors, then PATH.json, each whole or not at all."""
    tensors = {name: value.cpu() for name, value in distribution.state_dict().items()}
    write_tensors(_with(path, ".safetensors"), tensors, {"format": str(FORMAT)})
    record = sealed(saved, distribution)
    text = json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    partial = _with(path, ".json.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, _with(path, ".json"))


def sealed(saved: Saved, distribution: Distribution) -> Saved:
    """The record with the checksum of itself and of the distribution."""
    tensors = {name: value.cpu() for name, value in distribution.state_dict().items()}
    return saved.model_copy(update={"checksum": _checksum(tensors, saved)})


def load_distribution(path: str | Path) -> tuple[Distribution, Saved]:
    """Read a distribution by the name of either of its files, or without an ending."""
    stem = Path(path)
    if stem.suffix in (".safetensors", ".json"):
        stem = stem.with_suffix("")
    try:
        saved = Saved.model_validate(json.loads(_with(stem, ".json").read_text(encoding="utf-8")))
        if saved.format != FORMAT:
            raise ValueError(f"it is of format {saved.format}, this version reads {FORMAT}")
        saved.stated_budget()
        with safe_open(_with(stem, ".safetensors"), framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if saved.checksum != _checksum(tensors, saved):
            raise ValueError("the two files were changed, or do not belong together")
        distribution = _built(saved, tensors)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise _unreadable(stem, f"field {field!r}: {first['msg']}") from error
    except UNREADABLE as error:
        raise _unreadable(stem, " ".join(str(error).split())[:200]) from error
    except DistributionError:
        raise
    except NpprError as error:
        raise _unreadable(stem, str(error)) from error
    return distribution, saved


def _built(saved: Saved, tensors: Mapping[str, Tensor]) -> Distribution:
    family = Family.from_dict(saved.family)
    with torch.random.fork_rng(devices=[]):
        distribution = Distribution(family, saved.shape, saved.classes, saved.features)
    distribution.load_state_dict(dict(tensors))
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise ValueError("its tensors hold NaN or Inf")
    if not bool(((distribution.chosen >= 0) & (distribution.chosen < family.components)).all()):
        raise ValueError("it chooses components it does not have")
    distribution.rule = saved.rule
    return distribution.eval()


def _unreadable(stem: Path, reason: str) -> DistributionError:
    return DistributionError(
        f"`distribution` must be a pair of files written by nppr fit, got {str(stem)!r} which cannot"
        f" be read: {reason}. Example: --distribution runs/fit/nppr"
    )


def _checksum(tensors: Mapping[str, Tensor], saved: Saved) -> str:
    """A hash of all tensors and of all that the record says."""
    record = saved.model_dump(mode="json", exclude={"checksum"})
    digest = hashlib.sha256(json.dumps(record, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        content = tensor.detach().contiguous().flatten().view(torch.uint8)
        digest.update(content.numpy().tobytes())
    return digest.hexdigest()


def _with(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
