"""The upper end of a bracket: an upper confidence bound under the worst noise found.

`lower_bounds.estimate_bounds` gives the lower end. An infimum over noise is at most the value under
any noise that was found, and draws of that noise bound its value from above.
"""

from __future__ import annotations

from nppr.core.tally import Claim, Direction, Estimate, Evaluate, Metric, Tally
from nppr.statistics.betting import betting
from nppr.statistics.estimates import make_estimate, require_readable
from nppr.statistics.intervals import Interval
from nppr.statistics.lower_bounds import bound_pooled_failures


def estimate_upper_ends(
    tally: Tally[Evaluate], confidence: float, brackets: int = 1, seed: int = 0
) -> list[Estimate]:
    """Return the mean over clean-correct inputs under this noise, for the population and the test set.

    Half of the error `1 - confidence` is for the upper ends of all brackets of one claim together,
    the other half for their lower ends. Each interval here misses with `1 / brackets` of the error,
    half of it at each end. The first is the betting interval over inputs, the second the exact
    binomial interval of the pooled draws (`bound_pooled_failures`, applied to failures and to
    correct draws).
    """
    rates = tally.headline_rates
    require_readable(tally, confidence, rates)
    error = (1 - confidence) / brackets
    correct, draws = tally.correct[tally.clean_correct], tally.draws
    low = 1 - bound_pooled_failures(draws - correct, draws, 1 - error / 2)
    high = bound_pooled_failures(correct, draws, 1 - error / 2)
    ends = (
        (Claim.POPULATION, "betting", betting(rates, 1 - error, seed)),
        (Claim.TEST_SET, "exact", Interval(low, high)),
    )
    return [
        make_estimate(
            tally, Metric.NPPR, float(rates.mean()), interval, method, confidence, len(rates),
            claim=claim, direction=Direction.UPPER_BOUND,
        )
        for claim, method, interval in ends
    ]  # fmt: skip
