"""Nodes that look at every input once: the answers without noise, and the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from nppr.classifiers import Prepared
from nppr.data import Data
from nppr.measure import measure
from nppr.sources import Clean
from nppr.study.cache import Cache
from nppr.study.graph import Node
from nppr.study.resources import loaded_data, prepared
from nppr.study.work_train import WEIGHTS
from nppr.tensor_files import write_tensors
from nppr.types import BoolArray, FloatArray, Tally

__all__ = ["classifier_for", "clean", "features", "known_features", "known_right", "parts_of"]

ANSWERS = "answers.safetensors"
FEATURES = "features.safetensors"


def clean(node: Node, cache: Cache) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Which inputs of each part are right without noise, and the losses of those evaluated."""
    tensors: dict[str, Tensor] = {}
    calls = 0
    for name, _, tally in _looked_at(node, cache):
        calls += tally.calls
        tensors[f"right/{name}"] = torch.from_numpy(tally.right == 1)
        if tally.sums is not None:
            tensors[f"losses/{name}"] = torch.from_numpy(tally.sums)
    write_tensors(cache.folder(node.hash) / ANSWERS, tensors, {})
    right = tensors["right/evaluate"].double()
    return {"accuracy": float(right.mean()), "calls": calls}, (ANSWERS,)


def features(node: Node, cache: Cache) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The features of every input of each part, `(N, F)`."""
    tensors: dict[str, Tensor] = {}
    calls = 0
    seen: dict[int, Tensor] = {}
    for name, part, tally in _looked_at(node, cache, seen):
        calls += tally.calls
        tensors[name] = torch.stack([seen[index] for index in part.indices.tolist()]).cpu()
    write_tensors(cache.folder(node.hash) / FEATURES, tensors, {})
    return {"features": tensors["evaluate"].shape[1], "calls": calls}, (FEATURES,)


def _looked_at(
    node: Node, cache: Cache, keep: dict[int, Tensor] | None = None
) -> Iterator[tuple[str, Any, Tally[Any]]]:
    """Every part that has inputs, with the answers to them; `keep` takes the features of a part."""
    classifier = classifier_for(node, cache)
    for name, part in parts_of(loaded_data(node.how["data"])).items():
        if keep is not None:
            keep.clear()
        if len(part):
            tally = measure(
                Clean(),
                classifier,
                part,
                clean_correct=np.ones(len(part), bool),
                quantise=node.how["quantise"],
                keep=keep,
            )
            yield name, part, tally


def classifier_for(node: Node, cache: Cache) -> Prepared:
    """The classifier of a node; one that was trained here comes with the weights of its node."""
    how = dict(node.how["classifier"])
    if node.how["trained"]:
        how["weights"] = str(cache.folder(node.how["trained"]) / WEIGHTS)
    return prepared(how, node.how["data"], node.how["device"])


def known_right(cache: Cache, hash_: str, part: str) -> tuple[BoolArray, FloatArray | None]:
    """Which inputs of a part are right without noise, and the logarithms of their losses."""
    with safe_open(cache.folder(hash_) / ANSWERS, framework="np") as file:
        right = file.get_tensor(f"right/{part}")
        losses = f"losses/{part}"
        return right, file.get_tensor(losses) if losses in file.keys() else None  # noqa: SIM118


def known_features(cache: Cache, hash_: str, part: str) -> Tensor:
    """The features of all inputs of a part, `(N, F)`."""
    with safe_open(cache.folder(hash_) / FEATURES, framework="pt") as file:
        found: Tensor = file.get_tensor(part)
    return found


def parts_of(data: Data) -> dict[str, Any]:
    """The three parts by name."""
    return {part.kind.name: part for part in (data.fit, data.select, data.evaluate)}
