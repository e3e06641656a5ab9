"""Networks that nppr can build by name: with shipped weights, weights from a file, or random ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import nn

from nppr.errors import SpecError, WeightsError, unknown
from nppr.models.model_formats import LoadedModel, ModelFormat, ModelRequest
from nppr.models.weight_files import load_into, read_weights
from nppr.models.zoo.networks import VGG16, CifarResNet, DigitsCNN, ResNet, Stem
from nppr.system.specs import RANDOM_WEIGHTS

__all__ = ["ZOO", "Architecture", "Stem", "shipped_weights"]


@dataclass(frozen=True)
class Architecture:
    """`make(classes, channels)` builds a network; with `stems`, a third argument is its stem."""

    make: Callable[..., nn.Module]
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
        stems = [Stem(stem or Stem.IMAGENET)] if self.stems else []
        return self.make(classes, channels, *stems)


ZOO: dict[str, Architecture] = {
    "digits-cnn": Architecture(DigitsCNN),
    "resnet18": Architecture(partial(ResNet, (2, 2, 2, 2)), stems=True),
    "resnet50": Architecture(partial(ResNet, (3, 4, 6, 3), wide=1), stems=True),
    "wide_resnet50_2": Architecture(partial(ResNet, (3, 4, 6, 3), wide=2), stems=True),
    "vgg16": Architecture(VGG16, stems=True),
    **{
        f"resnet{depth}": Architecture(partial(CifarResNet, depth))
        for depth in (20, 32, 44, 56, 110)
    },
}


def shipped_weights(name: str) -> Path | None:
    """Return the weights file that the package contains for an architecture, or None."""
    path = Path(__file__).with_name("weights") / f"{name}.safetensors"
    return path if path.is_file() else None


def load_zoo(wanted: ModelRequest) -> LoadedModel:
    """Build a network; unspecified classes and channels are taken from the data."""
    name, classes, data = wanted.name, wanted.classes, wanted.data
    if wanted.weights is not None and str(wanted.weights) == RANDOM_WEIGHTS:
        if data is None:
            raise SpecError("`data` must be given for random weights.")
        with torch.random.fork_rng():
            torch.manual_seed(0)
            network = ZOO[name].build(classes or data.classes, data.shape[0], wanted.stem)
        return LoadedModel(network.eval())
    chosen = wanted.weights if wanted.weights is not None else shipped_weights(name)
    if chosen is None:
        raise WeightsError(
            f"`weights` must be given for {name!r}: nppr ships none for it."
            f" Train them with: nppr train {name} --data ..."
        )
    weights = read_weights(chosen)
    if weights.architecture not in (None, name):
        raise WeightsError(
            f"`weights` must be of {name!r}, got {weights.architecture!r} in {str(chosen)!r}."
            f" Give --model {weights.architecture}."
        )
    classes = classes or weights.classes or (data.classes if data else None)
    if classes is None:
        raise SpecError("`classes` must be given: the weights' metadata does not state them.")
    channels = data.shape[0] if data else weights.channels
    stem = wanted.stem if wanted.stem is not None else weights.metadata.get("stem")
    network = ZOO[name].build(classes, channels, stem)
    load_into(network, weights)
    mean, std = weights.numbers("mean"), weights.numbers("std")
    return LoadedModel(network.eval(), mean, std, weights=Path(chosen))


ZOO_MODELS = ModelFormat(
    load_zoo,
    other_files={".safetensors": "weights without a network. Give --model NAME --weights {0!r}"},
)
