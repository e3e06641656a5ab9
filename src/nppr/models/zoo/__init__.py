"""Architectures that nppr can build by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import nn

from nppr.errors import SpecError, unknown
from nppr.models.zoo.networks import VGG16, CifarResNet, DigitsCNN, ResNet, Stem

__all__ = ["ZOO", "Architecture", "Stem", "shipped_weights"]


@dataclass(frozen=True)
class Architecture:
    """How to build a network; `stems` states whether it can have either stem."""

    make: Callable[[int, int, Stem], nn.Module]
    stems: bool = False

    def build(self, classes: int, channels: int, stem: str | None = None) -> nn.Module:
        """Return the network with random weights.

        >>> sum(p.numel() for p in ZOO["resnet18"].build(10, 3).parameters())
        11181642
        """
        if stem is not None and not self.stems:
            raise SpecError(f"`stem` must be left out for a network of one form, got {stem!r}.")
        if stem is not None and stem not in list(Stem):
            raise unknown("stem", stem, [known.value for known in Stem])
        return self.make(classes, channels, Stem(stem or Stem.IMAGENET))


def _cifar_resnet(depth: int) -> Architecture:
    return Architecture(lambda classes, channels, _: CifarResNet(depth, classes, channels))


ZOO: dict[str, Architecture] = {
    "digits-cnn": Architecture(lambda classes, channels, _: DigitsCNN(classes, channels)),
    "resnet18": Architecture(partial(ResNet, (2, 2, 2, 2)), stems=True),
    "resnet50": Architecture(partial(ResNet, (3, 4, 6, 3), wide=1), stems=True),
    "wide_resnet50_2": Architecture(partial(ResNet, (3, 4, 6, 3), wide=2), stems=True),
    "vgg16": Architecture(VGG16, stems=True),
    **{f"resnet{depth}": _cifar_resnet(depth) for depth in (20, 32, 44, 56, 110)},
}


def shipped_weights(name: str) -> Path | None:
    """Return the weights file that the package contains for an architecture, or None."""
    path = Path(__file__).with_name("weights") / f"{name}.safetensors"
    return path if path.is_file() else None
