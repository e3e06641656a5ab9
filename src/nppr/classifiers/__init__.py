"""Classifiers: wrapping, loading, the zoo and its training."""

from nppr.classifiers.load import ModelSpec, load_classifier
from nppr.classifiers.prepare import Prepared, prepare
from nppr.classifiers.wrap import Classifier, FrozenClassifier, frozen

__all__ = [
    "Classifier",
    "FrozenClassifier",
    "ModelSpec",
    "Prepared",
    "frozen",
    "load_classifier",
    "prepare",
]
