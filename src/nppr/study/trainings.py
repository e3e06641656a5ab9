"""From the training of a study to the settings that it stands for."""

from __future__ import annotations

from dataclasses import replace

from nppr.budget import Budget
from nppr.classifiers.training import Adversary, Optimiser, TrainSettings, default_settings
from nppr.errors import BudgetError
from nppr.study.spec import Training

__all__ = ["train_settings"]

GIVEN = (
    "epochs", "batch_size", "learning_rate", "weight_decay", "momentum", "warm_up",
    "label_smoothing", "crop", "flip",
)  # fmt: skip


def train_settings(
    model: str, shape: tuple[int, ...], training: Training, *, threads: int, stem: str | None
) -> TrainSettings:
    """All settings, on images of `shape` (C, H, W): those given, else the network's defaults."""
    chosen = None if training.optimiser is None else Optimiser(training.optimiser)
    defaults = default_settings(model, shape, chosen)
    given = {name: getattr(training, name) for name in GIVEN}
    adversary = None
    if training.method == "pgd":
        if training.eps is None:
            raise BudgetError("`eps` of a pgd training must be given. Example: eps = '8/255'")
        budget = Budget.parse(training.norm, training.eps)
        adversary = Adversary(budget, training.attack_steps, training.attack_step)
    stated = {name: value for name, value in given.items() if value is not None}
    return replace(
        defaults, adversary=adversary, seed=training.seed, threads=threads, stem=stem, **stated
    )
