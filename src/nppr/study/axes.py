"""The words of a study's tables: what a number belongs to, and which number it is."""

from __future__ import annotations

__all__ = ["AXES", "LEARNED", "OF_FITS", "SEEDED", "SHARES", "VALUES"]

AXES = (
    "grid",
    "data",
    "classifier",
    "target",
    "group",
    "source",
    "dependency",
    "components",
    "covariance",
    "upsampler",
    "loss",
    "feature_model",
    "floor",
    "epochs",
    "norm",
    "fit_radius",
    "radius",
)
"""What distinguishes two measurements, but for seeds, over which tables take the mean."""

LEARNED = "nppr"
"""The source that stands for a fitted distribution."""

VALUES = {
    "accuracy": "share of inputs that are right without noise",
    "normalised": "accuracy under the source over all inputs / clean accuracy",
    "robustness": "PR, NPPR or AR: over the inputs that are right without noise",
    "stress": "mean over inputs of the stress",
    "normalised_stress": "the same divided by the loss without noise",
    "entropy_ratio": "entropy of the weights / log K, before sharpening",
    "max_weight": "largest weight, before sharpening",
    "min_weight": "smallest weight, before sharpening",
    "std_weight": "standard deviation of the weights, before sharpening",
    "realised_std": "standard deviation of the perturbation / radius",
    "fit_loss": "loss of the fit, mean of the last tenth of its steps",
    "fit_pr": "share of right answers in the fit, mean of the last tenth of its steps",
    "fit_calls": "classifier calls of this family's own fit",
    "fit_seconds": "seconds of this family's own fit",
    "fit_seconds_per_epoch": "the same for one pass over the fit inputs",
    "seconds": "seconds of the measurement",
    "calls": "classifier calls of the measurement",
}

SHARES = (
    "accuracy", "normalised", "robustness", "entropy_ratio", "max_weight", "min_weight",
    "std_weight", "fit_pr",
)  # fmt: skip
"""Values that a table shows in percent."""

SEEDED = ("normalised", "robustness", "stress", "normalised_stress", "seconds")
"""Values that differ between evaluation seeds: a table shows their standard deviation."""

OF_FITS = (
    "entropy_ratio", "max_weight", "min_weight", "std_weight", "realised_std", "fit_loss", "fit_pr",
    "fit_calls", "fit_seconds", "fit_seconds_per_epoch",
)  # fmt: skip
"""Values of a fit, the same wherever it is measured."""
