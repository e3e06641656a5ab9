"""Training of the zoo's networks: standard or adversarial, reproducible by seed, resumable."""

from nppr.train.training_examples import image_shape, measure_accuracy
from nppr.train.training_files import EpochResult, Outputs
from nppr.train.training_loop import TrainedNetwork, TrainProgress, train_network
from nppr.train.training_settings import (
    Adversary,
    Method,
    Optimiser,
    TrainSettings,
    default_training,
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
    "TrainedNetwork",
    "default_training",
    "image_shape",
    "measure_accuracy",
    "require_known",
    "train_network",
]
