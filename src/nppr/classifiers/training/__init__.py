"""Training of the zoo's networks: standard or adversarial, reproducible by seed, resumable."""

from nppr.classifiers.training.train_network import Trained, TrainProgress, train
from nppr.classifiers.training.training_examples import accuracy, image_shape
from nppr.classifiers.training.training_files import EpochResult, Outputs
from nppr.classifiers.training.training_settings import (
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
