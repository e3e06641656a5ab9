"""Training of the zoo's networks: standard or adversarial, reproducible by seed, resumable."""

from nppr.train.train_network import Trained, TrainProgress, train
from nppr.train.training_examples import accuracy, image_shape
from nppr.train.training_files import EpochResult, Outputs
from nppr.train.training_settings import (
    Adversary,
    Method,
    Optimiser,
    TrainSettings,
    default_settings,
    require_known,
)

__all__ = [
    "Adversary",
    "EpochResult",
    "Method",
    "Optimiser",
    "Outputs",
    "TrainProgress",
    "TrainSettings",
    "Trained",
    "accuracy",
    "default_settings",
    "image_shape",
    "require_known",
    "train",
]
