"""Networks of the zoo by name, with shipped weights, weights from a file, or random weights."""

from __future__ import annotations

from pathlib import Path

import torch

from nppr.errors import SpecError, WeightsError
from nppr.models.model_formats import LoadedModel, ModelFormat, ModelRequest
from nppr.models.weight_files import load_into, read_weights
from nppr.models.zoo import ZOO, shipped_weights
from nppr.system.specs import RANDOM_WEIGHTS


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
