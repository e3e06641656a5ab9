"""What a training says about itself: to a resume, in the weights file and in its log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from nppr.classifiers.training.examples import Examples, Normalisation
from nppr.classifiers.training.settings import TrainSettings
from nppr.classifiers.training.standing import Standing
from nppr.data import Data

__all__ = ["described", "log_of", "metadata_of"]

LOG_FORMAT = 1


def described(
    architecture: str, data: Data, examples: Examples, settings: TrainSettings
) -> dict[str, Any]:
    """Everything that determines the weights."""
    return {
        "model": architecture,
        "data": data.name,
        "classes": data.classes,
        "images": examples.fingerprint(),
        **settings.described(),
    }


def metadata_of(
    architecture: str, data: Data, settings: TrainSettings, normalisation: Normalisation
) -> dict[str, str]:
    """What a weights file says about itself, as text."""
    facts = {
        "architecture": architecture,
        "classes": str(data.classes),
        "mean": ",".join(repr(number) for number in normalisation.mean),
        "std": ",".join(repr(number) for number in normalisation.std),
        "data": data.name,
        "epochs": str(settings.epochs),
        "method": settings.method.value,
        "seed": str(settings.seed),
    }
    if settings.stem is not None:
        facts["stem"] = settings.stem
    if settings.adversary is not None:
        facts["budget"] = str(settings.adversary.budget)
    return facts


def log_of(
    settings: dict[str, Any],
    examples: Examples,
    data: Data,
    normalisation: Normalisation,
    standing: Standing,
    reached: float,
) -> dict[str, Any]:
    """The log: no clock and no machine in it, so that the same training gives the same log."""
    return {
        "format": LOG_FORMAT,
        "settings": settings,
        "normalisation": asdict(normalisation),
        "train": {
            "inputs": len(examples),
            "epochs": [asdict(result) for result in standing.finished],
        },
        "evaluate": {"inputs": len(data.evaluate), "accuracy": reached},
    }
