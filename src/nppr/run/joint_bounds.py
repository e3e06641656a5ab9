"""Two bounds of the same sets, read together: noise that may see the input, and noise that does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nppr.core.tally import Metric
from nppr.report.number import Number, join_intervals, split_intervals
from nppr.sources import Source
from nppr.statistics.noise_sets import RATIO


def apply_supersets(numbers: Sequence[Number], sources: Iterable[Source]) -> list[Number]:
    """The numbers, where less is never shown of a set than of the set that contains it.

    Noise that does not see the input lies in the set of noise that may see it. The two bounds of a
    pair share the error (`nppr.sources.share_error`), so both hold together, and the larger of them
    holds for noise that does not see the input. If sets are asked for that keep a value, it is the
    larger set.
    """
    supersets = {each.name: each.superset for each in sources if each.superset}
    found: list[Number] = []
    for number in numbers:
        if number.metric is Metric.BOUND and number.source in supersets:
            rivals = [
                each
                for other in numbers
                if other.metric is Metric.BOUND and other.source == supersets[number.source]
                for each in split_intervals(other)
            ]
            parts = split_intervals(number)
            found += join_intervals(_best(each, rivals) for each in parts) or [number]
        else:
            found.append(number)
    return found


def _best(row: Number, others: Sequence[Number]) -> Number:
    """The bound of one claim, or what the bounds of the superset show of it."""
    rivals = [other for other in others if _question(other) == _question(row)]
    same = [other for other in rivals if _set(other) == _set(row)]
    for other in same or rivals:
        row = _larger(row, other)
    return row


def _question(row: Number) -> tuple[object, ...]:
    """Return everything that defines a bound except the size of its set."""
    bound, claim = row.bound, row.own.claim if row.own else None
    assert bound is not None
    ratio = None if bound.noise_set == RATIO else bound.density_ratio
    return claim, bound.radius, bound.noise_set, ratio


def _set(row: Number) -> object:
    return row.bound and row.bound.bounded


def _larger(row: Number, other: Number) -> Number:
    """The row with what another shows, if that is a larger value of the same set, or a larger set."""
    if row.bound is None or other.bound is None or row.own is None or other.own is None:
        return row
    mine, its = row.bound.bounded, other.bound.bounded
    if mine is None or its is None or row.value is None or other.value is None:
        return row
    if other.value > row.value if its == mine else its.contains(mine):
        ends = {"low": other.own.low, "method": other.own.method}
        moved = row.with_subject(density_ratio=other.bound.density_ratio, size=other.bound.size)
        shown = moved.with_intervals(row.own.model_copy(update=ends))
        return shown.model_copy(update={"value": other.value})
    return row
