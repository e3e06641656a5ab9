"""Training of the zoo's networks: standard or adversarial, reproducible by seed, resumable."""

from nppr.classifiers.training.examples import accuracy, image_shape
from nppr.classifiers.training.outputs import Outputs
from nppr.classifiers.training.recipes import default_settings, require_known
from nppr.classifiers.training.run import Trained, train
from nppr.classifiers.training.settings import Adversary, Method, Optimiser, TrainSettings
from nppr.classifiers.training.standing import EpochResult, TrainProgress

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
