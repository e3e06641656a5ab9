"""Bounds for one binomial count per input: Wilson's interval and exact one-sided bounds.

The exact two-sided interval is `clopper_pearson` of the intervals.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from nppr.errors import SpecError
from nppr.statistics.intervals import clopper_pearson
from nppr.types import BoolArray, FloatArray, IntArray

__all__ = [
    "clopper_pearson",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "error_of",
    "exact_lower",
    "exact_upper",
    "wilson",
    "wilson_tested",
]

LEAST_INFORMATION = 5.0


def error_of(confidence: float) -> float:
    """`1 - confidence`; `SpecError` unless the confidence lies strictly between 0 and 1."""
    if not 0 < confidence < 1:
        raise SpecError(f"`confidence` must lie in (0, 1), got {confidence}. Example: 0.95")
    return 1 - confidence


def wilson(right: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Score intervals of success probabilities, `(N,) -> (2, N)`.

    Approximate: an interval holds its probability p with probability near `confidence` when
    `n p (1 - p)` is not small: 92.5 to 97.5 % instead of 95 % where it is at least 5 and n at least
    50 (`wilson_tested` says where, by the observed share). For smaller ones it can fall far below: to
    84 % for p just below 0.177 / n. Reference: Wilson, JASA, 1927; Brown, Cai and DasGupta, Statistical
    Science, 2001.

    >>> wilson(np.array([5]), 10, 0.95).round(4).tolist()
    [[0.2366], [0.7634]]
    """
    z = float(stats.norm.isf(error_of(confidence) / 2))
    draws = np.asarray(draws)
    p = right / draws
    centre = (p + z**2 / (2 * draws)) / (1 + z**2 / draws)
    half = z * np.sqrt(p * (1 - p) / draws + z**2 / (4 * draws**2)) / (1 + z**2 / draws)
    low = np.where(right == 0, 0.0, np.maximum(centre - half, 0.0))
    high = np.where(right == draws, 1.0, np.minimum(centre + half, 1.0))
    return np.stack([low, high])


def wilson_tested(right: IntArray, draws: IntArray | int) -> BoolArray:
    """Where `n p (1 - p)`, with the observed share for p, is at least 5: Wilson's tested regime.

    >>> wilson_tested(np.array([0, 5, 50]), 100).tolist()
    [False, False, True]
    """
    tested: BoolArray = right * (1 - right / draws) >= LEAST_INFORMATION
    return tested


def clopper_pearson_upper(wrong: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Exact one-sided upper bounds, `(N,) -> (N,)`.

    With probability at least `confidence` a bound is at least the probability of its count, whatever
    that is; no failure in n draws gives `1 - (1 - confidence) ** (1 / n)`. Reference: Clopper and
    Pearson, Biometrika, 1934.

    >>> clopper_pearson_upper(np.array([0]), 10, 0.95).round(4).tolist()
    [0.2589]
    """
    return exact_upper(wrong, draws, error_of(confidence))


def clopper_pearson_lower(right: IntArray, draws: IntArray | int, confidence: float) -> FloatArray:
    """Exact one-sided lower bounds, `(N,) -> (N,)`: at most the probability, as above.

    >>> clopper_pearson_lower(np.array([10]), 10, 0.95).round(4).tolist()
    [0.7411]
    """
    return exact_lower(right, draws, error_of(confidence))


def exact_upper(wrong: IntArray, draws: IntArray | int, error: float) -> FloatArray:
    """`clopper_pearson_upper` by its error, which keeps its digits where it is tiny."""
    with np.errstate(invalid="ignore"):
        high = stats.beta.isf(error, wrong + 1, draws - wrong)
    return np.where(wrong == draws, 1.0, np.minimum(high, 1.0))


def exact_lower(right: IntArray, draws: IntArray | int, error: float) -> FloatArray:
    """`clopper_pearson_lower` by its error, which keeps its digits where it is tiny."""
    with np.errstate(invalid="ignore"):
        low = stats.beta.ppf(error, right, draws - right + 1)
    return np.where(right == 0, 0.0, np.maximum(low, 0.0))
