"""The lowest of several sources, with an interval that accounts for the choice.

If K sources have equal true values, the lowest estimate is low by luck: its 95 % interval misses more
often than 5 %. Therefore it gets an interval with a K-th of the error, so that all K intervals hold
together (Bonferroni), and the interval of the lowest with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nppr.core.tally import Claim, Evaluate, Metric, Tally
from nppr.report.number import Number, StatedInterval
from nppr.statistics.betting import betting
from nppr.statistics.estimates import SEQUENCE, allow_for_audit, estimate_corrupted
from nppr.statistics.intervals import Interval


def correct_lowest(
    numbers: Sequence[Number],
    tallies: Mapping[str, Tally[Evaluate]],
    seed: int = 0,
    stopped: Callable[[Tally[Evaluate], int], Interval] | None = None,
) -> list[Number]:
    """Add an interval to the lowest PR and the lowest corruption if several sources have one.

    `stopped` is the interval of a run that stops by its widths, given how many share the error.
    """
    found = list(numbers)
    for metric in (Metric.PR, Metric.CORRUPTION):
        first: dict[str, int] = {}
        for at, row in enumerate(numbers):
            if row.metric is metric and row.value is not None and row.tally in tallies:
                first.setdefault(row.name, at)
        if len(first) > 1:
            lowest = min(first.values(), key=lambda at: numbers[at].value or 0.0)
            row = numbers[lowest]
            interval = _corrected(row, tallies[str(row.tally)], len(first), seed, stopped)
            found[lowest] = row.with_intervals(*row.intervals, interval)
    return found


def _corrected(
    row: Number,
    tally: Tally[Evaluate],
    candidates: int,
    seed: int,
    stopped: Callable[[Tally[Evaluate], int], Interval] | None,
) -> StatedInterval:
    confidence = 1 - (1 - row.confidence) / candidates
    if row.metric is Metric.CORRUPTION:
        exact = estimate_corrupted(tally, confidence)
        interval, method = Interval(exact.low, exact.high), exact.method
    elif stopped is not None:
        interval, method = stopped(tally, candidates), SEQUENCE
    else:
        allowed = allow_for_audit(tally, confidence)
        interval = betting(tally.headline_rates, allowed.confidence, seed)
        interval, method = interval.widened(allowed.of_mean(len(tally.headline_rates))), "betting"
    return StatedInterval(
        low=interval.low,
        high=interval.high,
        method=method,
        claim=row.own.claim if row.own else Claim.POPULATION,
        lowest_of=candidates,
    )
