"""What a run measures with: a classifier, inputs, where blocks are kept, and how long it took."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from nppr.core.tally import BoolArray, Estimate, Evaluate, Metric, Tally
from nppr.data import Data
from nppr.doctor.flags import NO_FIT_DATA, NO_GRADIENTS
from nppr.errors import GradientError, NoFitDataError
from nppr.measuring.blocks import Store
from nppr.measuring.measurement import ProgressCallback, measure
from nppr.models import PreparedClassifier
from nppr.report.model import Result
from nppr.run.run_folder import RunFolder
from nppr.settings import Measure
from nppr.sources import Source
from nppr.statistics.estimates import SEQUENCE
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
    classifier: PreparedClassifier
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
            self.classifier.original,
            self.data.fit,
            seed=self.settings.seed,
            device=self.classifier.device,
            progress=self.progress,
        )

    def read(self, source: Source, tally: Tally[Evaluate], clean: Tally[Evaluate]) -> list[Result]:
        """The rows of a source; bounds beside PR need a size that does not depend on the results."""
        found = source.read(tally, clean, self.settings.confidence, self.settings.seed)
        if self.stopped is not None and source.metric is not Metric.BOUND:
            found = [row for row in found if row.metric is not Metric.BOUND]
        return [result_of(source, estimate) for estimate in self.after_stopping(found, tally)]

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

    def failed(self, source: Source | str, metric: Metric, error: Exception) -> Result:
        """The row of a source that could not be measured."""
        fields = {"source": source} if isinstance(source, str) else _source_fields(source)
        logger.debug("%s failed", fields["source"], exc_info=error)
        return Result(
            **fields,
            metric=metric,
            confidence=self.settings.confidence,
            flags=tuple(flag for kind, flag in SKIPPED.items() if isinstance(error, kind)),
            error=" ".join(str(error).split()) or type(error).__name__,
        )


def result_of(source: Source, estimate: Estimate, *, with_references: bool = False) -> Result:
    """An estimate as a row of the report."""
    fields = {**_source_fields(source), **vars(estimate)}
    return Result(**fields, tally=source.name, with_references=with_references)


def _source_fields(source: Source) -> dict[str, Any]:
    """The fields of a row that identify its source."""
    return {
        "source": source.row_source,
        "radius": source.budget.radius if source.budget else None,
        "dependency": source.dependency,
        "floor": source.floor,
        "fit_seed": source.fit_seed,
    }
