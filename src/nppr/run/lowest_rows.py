"""The lowest of several sources, with an interval that accounts for the choice.

Of K sources whose true values are equal, the one that comes out lowest is low by luck: its own interval
at 95 % misses more often than 5 %. So it gets an interval with a K-th of the error, which is that of
all K sources together (Bonferroni): whichever is the lowest, its interval is one that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nppr.core.tally import Evaluate, Metric, Tally
from nppr.report.model import Result
from nppr.statistics.betting import betting
from nppr.statistics.estimates import SEQUENCE, allow_for_audit, estimate_corrupted
from nppr.statistics.intervals import Interval


def lowest_rows(
    results: Sequence[Result],
    tallies: Mapping[str, Tally[Evaluate]],
    seed: int = 0,
    stopped: Callable[[Tally[Evaluate], int], Interval] | None = None,
) -> list[Result]:
    """A row for the lowest PR and the lowest corruption, where several sources have one.

    `stopped` is the interval of a run that stops by its widths, given how many share the error.
    """
    rows = []
    for metric in (Metric.PR, Metric.CORRUPTION):
        first: dict[str, Result] = {}
        for row in results:
            if row.metric is metric and row.value is not None and row.tally in tallies:
                first.setdefault(row.name, row)
        if len(first) > 1:
            lowest = min(first.values(), key=lambda row: row.value or 0.0)
            rows.append(_corrected(lowest, tallies[str(lowest.tally)], len(first), seed, stopped))
    return rows


def _corrected(
    row: Result,
    tally: Tally[Evaluate],
    candidates: int,
    seed: int,
    stopped: Callable[[Tally[Evaluate], int], Interval] | None,
) -> Result:
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
    changed = {"low": interval.low, "high": interval.high, "method": method, "flags": ()}
    return row.model_copy(update={**changed, "lowest_of": candidates})
