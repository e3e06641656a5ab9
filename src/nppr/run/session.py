"""What a run measures with: a classifier, inputs, where blocks are kept, and how long it took."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from torch import Tensor

from nppr.core.tally import BoolArray, Estimate, Evaluate, Metric, Tally
from nppr.data import Data
from nppr.doctor.flags import NO_FIT_DATA, NO_GRADIENTS
from nppr.errors import GradientError, NoFitDataError
from nppr.measuring.blocks import Store
from nppr.measuring.measurement import ProgressCallback, measure
from nppr.models import Prepared
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
from nppr.run.run_folder import RunFolder
from nppr.settings import Measure
from nppr.sources import Source
from nppr.statistics.estimates import APPROXIMATE, SEQUENCE
from nppr.statistics.intervals import Interval

logger = logging.getLogger(__name__)

SKIPPED = {GradientError: NO_GRADIENTS, NoFitDataError: NO_FIT_DATA}
"""Errors after which a source is skipped, not failed."""


@dataclass
class Session:
    """Measures one source after the other on the same inputs.

    A run with a wanted precision grows `data` and `settings.draws` on the way, keeps blocks by a
    `store` of its own, and has intervals that hold whenever it is `stopped`.
    """

    settings: Measure
    data: Data
    classifier: Prepared
    folder: RunFolder | None = None
    progress: ProgressCallback | None = None
    store: Callable[[str], Store] | None = None
    stopped: Callable[[Tally[Evaluate], int], Interval] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def measure(
        self,
        source: Source,
        clean_correct: BoolArray,
        *,
        keep: dict[int, Tensor] | None = None,
        skip: BoolArray | None = None,
        stored: str | None = None,
    ) -> Tally[Evaluate]:
        """The tally of a source; its blocks are kept under its name, or under `stored`."""
        name, progress = stored or source.name, self.progress
        store = self.store or (self.folder.store if self.folder else None)
        with self.timed(name):
            tally = measure(
                source,
                self.classifier,
                self.data.evaluate,
                draws=self.settings.draws or 1,
                seed=self.settings.seed,
                clean_correct=clean_correct,
                quantise=self.settings.quantise,
                progress=(lambda at: progress(replace(at, source=name))) if progress else None,
                store=store(name) if store else None,
                keep=keep,
                skip=skip,
            )
        # Where memory ran out the next source begins with what was left.
        self.classifier = replace(self.classifier, micro_batch=tally.micro_batch)
        return tally

    def fitted(self, source: Source) -> Source:
        """The source, fitted on the fit split if it must be and there is one."""
        if not source.needs_fit_split or not len(self.data.fit):
            return source
        return source.fitted_on(
            self.classifier.reference,
            self.data.fit,
            seed=self.settings.seed,
            device=self.classifier.device,
            progress=self.progress,
        )

    def read(self, source: Source, tally: Tally[Evaluate], clean: Tally[Evaluate]) -> list[Number]:
        """The numbers of a source; bounds beside PR need a size that does not depend on the results."""
        found = source.read(tally, clean, self.settings.confidence, self.settings.seed)
        if self.stopped is not None and source.metric is not Metric.BOUND:
            found = [row for row in found if row.metric is not Metric.BOUND]
        return numbers_of(source, self.after_stopping(found, tally))

    def after_stopping(
        self, estimates: Sequence[Estimate], tally: Tally[Evaluate]
    ) -> list[Estimate]:
        """Of a run that stopped by its widths: first of all the interval that it stopped by."""
        first = estimates[0]
        if self.stopped is None or first.metric not in (Metric.PR, Metric.NPPR):
            return list(estimates)
        ends = vars(self.stopped(tally, 1))
        return [replace(first, method=SEQUENCE, flags=(), **ends), *estimates]

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the time a block takes to what a source took in this session."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + elapsed, 3)

    def failed(self, source: Source, error: Exception) -> Number:
        """Return the number of a source that could not be measured."""
        return self.without_value(subject_of(source, source.metric), source.metric, error)

    def without_value(self, subject: Subject, metric: Metric, error: Exception) -> Number:
        """Return the number of a subject that could not be measured."""
        logger.debug("%s failed", subject.source, exc_info=error)
        return Number(
            subject=subject,
            metric=metric,
            confidence=self.settings.confidence,
            flags=tuple(flag for kind, flag in SKIPPED.items() if isinstance(error, kind)),
            error=" ".join(str(error).split()) or type(error).__name__,
        )


def numbers_of(
    source: Source, estimates: Iterable[Estimate], *, tally: str | None = None, **facts: object
) -> list[Number]:
    """Return what was read off a tally of a source, one number for the intervals of each value.

    `facts` are further fields of the subject.
    """
    return join_intervals(
        number_of(
            subject_of(source, each.metric, each).model_copy(update=facts),
            each,
            source.name if tally is None else tally,
        )
        for each in estimates
    )


def number_of(subject: Subject, estimate: Estimate, tally: str | None = None) -> Number:
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


def subject_of(source: Source, metric: Metric, estimate: Estimate | None = None) -> Subject:
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
