"""Classifiers: wrapping, loading and preparing models, and the zoo of networks."""

from nppr.models.classifier import (
    Backend,
    Classifier,
    FrozenClassifier,
    check_classifier,
    check_finite,
    frozen,
    is_out_of_memory,
)
from nppr.models.load_model import ModelSpec, load_classifier
from nppr.models.prepare_classifier import (
    AGREEMENT,
    SPEEDUPS,
    FrozenPair,
    PreparedClassifier,
    fit_micro_batch,
    prepare,
    prepare_for_search,
    usable_device,
    with_rough_gradients,
    within_memory,
)

__all__ = [
    "AGREEMENT",
    "SPEEDUPS",
    "Backend",
    "Classifier",
    "FrozenClassifier",
    "FrozenPair",
    "ModelSpec",
    "PreparedClassifier",
    "check_classifier",
    "check_finite",
    "fit_micro_batch",
    "frozen",
    "is_out_of_memory",
    "load_classifier",
    "prepare",
    "prepare_for_search",
    "usable_device",
    "with_rough_gradients",
    "within_memory",
]
