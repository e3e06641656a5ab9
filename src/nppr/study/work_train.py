"""A node that trains a classifier."""

from __future__ import annotations

from typing import Any

from nppr.classifiers.training import image_shape, train
from nppr.study.cache import Cache
from nppr.study.graph import Node
from nppr.study.resources import loaded_data
from nppr.study.spec import Training
from nppr.study.trainings import train_settings

__all__ = ["WEIGHTS", "trained"]

WEIGHTS = "weights.safetensors"
LOG = "weights.json"


def trained(node: Node, cache: Cache) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Train on the fit and select parts; an interrupted training goes on from its last epoch."""
    data = loaded_data(node.how["data"])
    known = node.determined_by
    settings = train_settings(
        known["model"],
        image_shape(data),
        Training.model_validate(node.how["training"]),
        threads=node.how["threads"],
        stem=node.how["stem"],
    )
    folder = cache.folder(node.hash)
    if not (folder / "weights.checkpoint.safetensors").exists():
        for name in (WEIGHTS, LOG):  # of a run that ended between its last two files
            (folder / name).unlink(missing_ok=True)
    done = train(
        known["model"],
        data,
        folder / WEIGHTS,
        settings,
        device=node.how["device"],
        resume=True,
    )
    return {"accuracy": done.accuracy}, (WEIGHTS, LOG)
