"""From what is read off a tally to the numbers of a report: subject, value and intervals."""

from __future__ import annotations

from collections.abc import Iterable

from nppr.core.tally import Estimate, Metric
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
)
from nppr.sources import Source
from nppr.statistics.estimates import APPROXIMATE


def make_numbers(
    source: Source, estimates: Iterable[Estimate], *, tally: str | None = None, **facts: object
) -> list[Number]:
    """Return what was read off a tally of a source, one number for the intervals of each value.

    `facts` are further fields of the subject.
    """
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
