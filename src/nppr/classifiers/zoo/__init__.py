"""Architectures that nppr can build by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from torch import nn

from nppr.classifiers.zoo.digits_cnn import DigitsCNN

__all__ = ["ZOO", "Architecture", "shipped_weights"]


@dataclass(frozen=True)
class Architecture:
    """How to build a network: number of classes and of channels to a module."""

    build: Callable[[int, int], nn.Module]


ZOO: dict[str, Architecture] = {
    "digits-cnn": Architecture(DigitsCNN),
}


def shipped_weights(name: str) -> Path | None:
    """The weights file inside the package for an architecture, if there is one."""
    path = Path(str(files("nppr.classifiers.zoo").joinpath("weights", f"{name}.safetensors")))
    return path if path.is_file() else None
