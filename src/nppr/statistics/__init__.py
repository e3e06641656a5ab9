"""Intervals, tests and confidence sequences as pure functions, and estimates from tallies."""

from nppr.statistics.betting import betting, betting_sequence
from nppr.statistics.estimates import estimate_per_input
from nppr.statistics.intervals import (
    Interval,
    bootstrap,
    clopper_pearson,
    clopper_pearson_upper,
    empirical_bernstein,
    hoeffding,
    normal,
    simultaneous_upper,
    wilson,
)
from nppr.statistics.paired import (
    benjamini_hochberg,
    binomial_pvalues,
    exceeds_approximately,
    holm,
    holm_pvalues,
    paired_difference,
    paired_pvalues,
)
from nppr.statistics.sequential import BernoulliTest, Verdict, mixture_sequence

__all__ = [
    "BernoulliTest",
    "Interval",
    "Verdict",
    "benjamini_hochberg",
    "betting",
    "betting_sequence",
    "binomial_pvalues",
    "bootstrap",
    "clopper_pearson",
    "clopper_pearson_upper",
    "empirical_bernstein",
    "estimate_per_input",
    "exceeds_approximately",
    "hoeffding",
    "holm",
    "holm_pvalues",
    "mixture_sequence",
    "normal",
    "paired_difference",
    "paired_pvalues",
    "simultaneous_upper",
    "wilson",
]  # fmt: skip
