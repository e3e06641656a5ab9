"""Statistics: intervals as pure functions, and the readings of tallies."""

from nppr.statistics.estimates import (
    accuracy,
    adversarial,
    merged,
    normalised,
    per_input,
    probabilistic,
)
from nppr.statistics.intervals import (
    Interval,
    bootstrap,
    clopper_pearson,
    empirical_bernstein,
    hoeffding,
    normal,
    ratio_bootstrap,
)

__all__ = [
    "Interval",
    "accuracy",
    "adversarial",
    "bootstrap",
    "clopper_pearson",
    "empirical_bernstein",
    "hoeffding",
    "merged",
    "normal",
    "normalised",
    "per_input",
    "probabilistic",
    "ratio_bootstrap",
]
