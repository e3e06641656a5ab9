"""A node that trains a classifier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nppr.budget import Budget
from nppr.classifiers.training import (
    Adversary,
    Optimiser,
    TrainSettings,
    default_settings,
    image_shape,
    train,
)
from nppr.data import Data
from nppr.errors import BudgetError
from nppr.study.cache import Cache
from nppr.study.graph import Node
from nppr.study.resources import loaded_data
from nppr.study.spec import Training

__all__ = ["WEIGHTS", "trained"]

WEIGHTS = "weights.safetensors"
LOG = "weights.json"
GIVEN = (
    "epochs", "batch_size", "learning_rate", "weight_decay", "momentum", "warm_up",
    "label_smoothing", "crop", "flip",
)  # fmt: skip


def trained(node: Node, cache: Cache) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Train on the fit and select parts; an interrupted training goes on from its last epoch."""
    data = loaded_data(node.how["data"])
    known = node.determined_by
    settings = _settings(known["model"], data, Training.model_validate(known["training"]))
    settings = replace(settings, threads=known["threads"], stem=known["stem"])
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


def _settings(model: str, data: Data, training: Training) -> TrainSettings:
    chosen = None if training.optimiser is None else Optimiser(training.optimiser)
    defaults = default_settings(model, image_shape(data), chosen)
    given = {name: getattr(training, name) for name in GIVEN}
    adversary = None
    if training.method == "pgd":
        if training.eps is None:
            raise BudgetError("`eps` of a pgd training must be given. Example: eps = '8/255'")
        budget = Budget.parse(training.norm, training.eps)
        adversary = Adversary(budget, training.attack_steps, training.attack_step)
    stated = {name: value for name, value in given.items() if value is not None}
    return replace(defaults, adversary=adversary, seed=training.seed, **stated)
