"""Statistics: intervals, tests and sequences as pure functions, and the readings of tallies."""

from nppr.statistics.betting import betting, betting_lower
from nppr.statistics.density_ratio import at_least, at_least_together, pooled_upper
from nppr.statistics.estimates import (
    APPROXIMATE,
    FEWEST_INPUTS,
    GAMMAS,
    MOST_CONFIDENT,
    UNRESOLVED,
    accuracy,
    adversarial,
    corrupted,
    merged,
    normalised,
    per_input,
    probabilistic,
    probably_accurate,
    stressed,
)
from nppr.statistics.intervals import (
    RESAMPLES,
    Interval,
    bootstrap,
    check_confidence,
    clopper_pearson,
    clopper_pearson_upper,
    empirical_bernstein,
    half_width,
    hoeffding,
    normal,
    ratio_bootstrap,
    simultaneous_upper,
    student_quantile,
    wilson,
)
from nppr.statistics.paired import (
    JointDifference,
    PairedDifference,
    Share,
    benjamini_hochberg,
    binomial_pvalues,
    exceeds_approximately,
    guaranteed_difference,
    holm,
    joint_difference,
    paired_difference,
    unpaired_difference,
)
from nppr.statistics.sequential import BernoulliTest, Verdict, mixture_sequence

__all__ = [
    "APPROXIMATE", "FEWEST_INPUTS", "GAMMAS", "MOST_CONFIDENT", "RESAMPLES", "UNRESOLVED",
    "BernoulliTest", "Interval", "JointDifference", "PairedDifference", "Share", "Verdict",
    "accuracy", "adversarial", "at_least", "at_least_together", "benjamini_hochberg", "betting",
    "betting_lower", "binomial_pvalues", "bootstrap", "check_confidence", "clopper_pearson",
    "clopper_pearson_upper", "corrupted", "empirical_bernstein", "exceeds_approximately",
    "guaranteed_difference", "half_width", "hoeffding", "holm", "joint_difference", "merged",
    "mixture_sequence", "normal", "normalised", "paired_difference", "per_input", "pooled_upper",
    "probabilistic", "probably_accurate", "ratio_bootstrap", "simultaneous_upper", "stressed",
    "student_quantile", "unpaired_difference", "wilson",
]  # fmt: skip
