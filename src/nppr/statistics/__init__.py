"""Statistics: intervals as pure functions, and the readings of tallies."""

from nppr.statistics.betting import betting, betting_lower, betting_upper
from nppr.statistics.binomial import clopper_pearson_lower, clopper_pearson_upper, wilson
from nppr.statistics.estimates import (
    accuracy,
    adversarial,
    merged,
    normalised,
    per_input,
    probabilistic,
    probably_accurate,
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
from nppr.statistics.multiple import (
    benjamini_hochberg,
    binomial_pvalues,
    holm,
    pooled_upper,
    simultaneous_upper,
)
from nppr.statistics.paired import PairedDifference, paired_difference
from nppr.statistics.sequential import (
    BernoulliTest,
    BettingSequence,
    MeanTest,
    Verdict,
    mixture_sequence,
)

__all__ = [
    "BernoulliTest",
    "BettingSequence",
    "Interval",
    "MeanTest",
    "PairedDifference",
    "Verdict",
    "accuracy",
    "adversarial",
    "benjamini_hochberg",
    "betting",
    "betting_lower",
    "betting_upper",
    "binomial_pvalues",
    "bootstrap",
    "clopper_pearson",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "empirical_bernstein",
    "hoeffding",
    "holm",
    "merged",
    "mixture_sequence",
    "normal",
    "normalised",
    "paired_difference",
    "per_input",
    "pooled_upper",
    "probabilistic",
    "probably_accurate",
    "ratio_bootstrap",
    "simultaneous_upper",
    "wilson",
]
