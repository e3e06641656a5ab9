"""Two bounds of the same sets, read together: noise that may see the input, and noise that does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nppr.core.tally import Metric
from nppr.report.model import Result
from nppr.sources import Source
from nppr.statistics.noise_sets import RATIO


def with_supersets(rows: Sequence[Result], sources: Iterable[Source]) -> list[Result]:
    """The rows, where less is never shown of a set than of the set that contains it.

    Noise that does not see the input lies in the set of noise that may see it. The two bounds of a
    pair share the error (`nppr.sources.share_error`), so both hold together, and the larger of them
    holds for noise that does not see the input. If sets are asked for that keep a value, it is the
    larger set.
    """
    supersets = {each.name: each.superset for each in sources if each.superset}
    found = []
    for row in rows:
        if row.metric is Metric.BOUND and row.source in supersets:
            rivals = [
                other
                for other in rows
                if other.source == supersets[row.source] and _question(other) == _question(row)
            ]
            same = [other for other in rivals if other.bounded == row.bounded]
            for other in same or rivals:
                row = _larger(row, other)
        found.append(row)
    return found


def _question(row: Result) -> tuple[object, ...]:
    """What a bound is asked: all but the size of its set."""
    ratio = None if row.noise_set == RATIO else row.density_ratio
    return row.metric, row.claim, row.radius, row.noise_set, ratio


def _larger(row: Result, other: Result) -> Result:
    """The row with what another shows, if that is a larger value of the same set, or a larger set."""
    mine, its = row.bounded, other.bounded
    if row.value is None or other.value is None or mine is None or its is None:
        return row
    if other.value > row.value if its == mine else its.contains(mine):
        fields = ("value", "low", "method", "density_ratio", "size")
        return row.model_copy(update={name: getattr(other, name) for name in fields})
    return row
