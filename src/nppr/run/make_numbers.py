"""From what is read off tallies to the numbers of a report: subject, value and intervals.

**The lowest of several sources.** If K sources have equal true values, the lowest estimate is low by
luck: its 95 % interval misses more often than 5 %. Therefore it gets an interval with a K-th of the
error, so that all K intervals hold together (Bonferroni), and the interval of the lowest with them.

**Two bounds of the same sets.** Noise that does not see the input lies in the set of noise that may
see it. The two bounds of a pair share the error (`nppr.sources.share_error`), so both hold together,
and the larger of them holds for noise that does not see the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from nppr.core.tally import Claim, Direction, Estimate, Evaluate, FloatArray, Metric, Tally
from nppr.data import Data, Slice, slices_of
from nppr.report.findings import headline_of
from nppr.report.model import ReportRecord, SliceResult
from nppr.report.number import (
    AttackSubject,
    BoundSubject,
    CleanSubject,
    CorruptionSubject,
    LearnedSubject,
    NoiseSubject,
    Number,
    StatedInterval,
    StressSubject,
    Subject,
    join_intervals,
    split_intervals,
)
from nppr.sources import Source
from nppr.statistics.betting import betting
from nppr.statistics.estimates import APPROXIMATE, SEQUENCE, allow_for_audit, estimate_corrupted
from nppr.statistics.intervals import Interval
from nppr.statistics.noise_sets import RATIO, NoiseSet

EVERY_DRAW = (Metric.AR, Metric.CORRUPTION)
"""Metrics of inputs that stay correct under every draw."""

RATES = (Metric.PR, Metric.NPPR, *EVERY_DRAW)


def make_numbers(
    source: Source, estimates: Iterable[Estimate], *, tally: str | None = None, **facts: object
) -> list[Number]:
    """Return what was read off a tally; `facts` are further fields of the subject."""
    return join_intervals(
        make_number(
            make_subject(source, each.metric, each).model_copy(update=facts),
            each,
            source.name if tally is None else tally,
        )
        for each in estimates
    )


def make_number(subject: Subject, estimate: Estimate, tally: str | None = None) -> Number:
    """Return an estimate as a number of a subject, with one interval."""
    own = tuple(flag for flag in estimate.flags if flag == APPROXIMATE)
    return Number(
        subject=subject,
        metric=estimate.metric,
        value=estimate.value,
        direction=estimate.direction,
        confidence=estimate.confidence,
        intervals=(
            StatedInterval(
                low=estimate.low,
                high=estimate.high,
                method=estimate.method,
                claim=estimate.claim,
                flags=own,
            ),
        ),
        gamma=estimate.gamma,
        inputs=estimate.inputs,
        draws=estimate.draws,
        calls=estimate.calls,
        tally=tally,
        flags=tuple(flag for flag in estimate.flags if flag != APPROXIMATE),
    )


def make_subject(source: Source, metric: Metric, estimate: Estimate | None = None) -> Subject:
    """Return what a number of a source is about; a source that failed has no estimate."""
    name, radius = source.row_source, source.budget.radius if source.budget else None
    if estimate is not None and estimate.noise_set is not None:
        return BoundSubject(
            source=name,
            radius=radius,
            reference=estimate.reference,
            noise_set=estimate.noise_set,
            density_ratio=estimate.density_ratio,
            size=estimate.size,
            sees_input=estimate.sees_input,
            asked=not source.is_fixed_noise,
        )
    if source.dependency is not None:
        return LearnedSubject(
            source=name,
            radius=radius,
            rung=source.dependency,
            structure=source.structure,
            floor=source.floor or 0.0,
            fit_seed=source.fit_seed,
        )
    if source.metric is Metric.STRESS:
        return StressSubject(source=name, radius=radius, order=estimate.order if estimate else None)
    if metric is Metric.BOUND or (metric is Metric.NPPR and estimate is None):
        return BoundSubject(source=name, radius=radius)
    kinds: dict[Metric, type[CleanSubject | AttackSubject | CorruptionSubject]] = {
        Metric.ACCURACY: CleanSubject,
        Metric.AR: AttackSubject,
        Metric.CORRUPTION: CorruptionSubject,
    }
    if source.metric in kinds:
        return kinds[source.metric](source=name, radius=radius)
    return NoiseSubject(source=name, radius=radius, fixed=source.is_fixed_noise)


def correct_lowest(
    numbers: Sequence[Number],
    tallies: Mapping[str, Tally[Evaluate]],
    seed: int = 0,
    stopped: Callable[[Tally[Evaluate], int], Interval] | None = None,
) -> list[Number]:
    """Add an interval to the lowest PR and the lowest corruption if several sources have one."""
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
        interval, method = _bet_on(tally.headline_rates, tally, confidence, seed), "betting"
    return StatedInterval(
        low=interval.low,
        high=interval.high,
        method=method,
        claim=row.own.claim if row.own else Claim.POPULATION,
        lowest_of=candidates,
    )


def _bet_on(rates: FloatArray, tally: Tally[Evaluate], confidence: float, seed: int) -> Interval:
    """Return the guaranteed interval of the mean of some rates of a tally, with room for its audit."""
    allowed = allow_for_audit(tally, confidence)
    return betting(rates, allowed.confidence, seed).widened(allowed.of_mean(len(rates)))


def apply_supersets(numbers: Sequence[Number], sources: Iterable[Source]) -> list[Number]:
    """Never show less of a set than of the set that contains it."""
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
    same = [other for other in rivals if _bounded(other) == _bounded(row)]
    for other in same or rivals:
        row = _larger(row, other)
    return row


def _question(row: Number) -> tuple[object, ...]:
    """Return everything that defines a bound except the size of its set."""
    bound, claim = row.bound, row.own.claim if row.own else None
    assert bound is not None
    ratio = None if bound.noise_set == RATIO else bound.density_ratio
    return claim, bound.radius, bound.noise_set, ratio


def _bounded(row: Number) -> NoiseSet | None:
    return row.bound.bounded if row.bound else None


def _larger(row: Number, other: Number) -> Number:
    """The row with what another shows, if that is a larger value of the same set, or a larger set."""
    mine, its = _bounded(row), _bounded(other)
    if not (mine and its and other.bound and row.own and other.own):
        return row
    if row.value is None or other.value is None:
        return row
    if other.value > row.value if its == mine else its.contains(mine):
        moved = row.with_subject(density_ratio=other.bound.density_ratio, size=other.bound.size)
        ends = {"low": other.own.low, "method": other.own.method}
        shown = moved.with_intervals(row.own.model_copy(update=ends))
        return shown.model_copy(update={"value": other.value})
    return row


def measure_slices(
    report: ReportRecord, data: Data, tallies: Mapping[str, Tally[Evaluate]]
) -> tuple[SliceResult, ...]:
    """A row for every slice with a clean-correct input, by column, the worst first.

    The intervals are guaranteed (betting) for the population, and hold together within a column: each
    of its k slices has a k-th of the error.
    """
    row = headline_of(report)
    tally = tallies.get(row.tally or "") if row else None
    if row is None or tally is None or row.metric not in RATES:
        return ()
    columns = slices_of(data, tally.indices, tally.labels)
    return tuple(
        each for slices in columns.values() for each in _column(report, row, tally, slices)
    )


def _column(
    report: ReportRecord, row: Number, tally: Tally[Evaluate], slices: Sequence[Slice]
) -> list[SliceResult]:
    held = [each for each in slices if (each.rows & tally.clean_correct).any()]
    share = 1 - (1 - report.settings.measure.confidence) / max(1, len(held))
    rates = tally.unbroken.astype(np.float64) if row.metric in EVERY_DRAW else tally.rates
    found = []
    for each in held:
        own = rates[each.rows & tally.clean_correct]
        interval = _bet_on(own, tally, share, report.seed)
        found.append(
            SliceResult(
                column=each.column,
                name=each.name,
                source=row.name,
                tally=row.tally or "",
                metric=row.metric,
                direction=row.direction or Direction.ESTIMATE,
                value=float(own.mean()),
                low=interval.low,
                high=interval.high,
                confidence=report.settings.measure.confidence,
                method="betting",
                claim=row.own.claim if row.own else Claim.POPULATION,
                inputs=len(own),
                draws=tally.draws,
            )
        )
    return sorted(found, key=lambda each: (each.value, each.high, each.name))
