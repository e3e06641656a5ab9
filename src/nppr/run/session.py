"""What a run measures with: a classifier, inputs, where blocks are kept, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from torch import Tensor

from nppr.checkpoint import Store
from nppr.classifiers import Prepared
from nppr.data import Data
from nppr.errors import GradientError, NoFitDataError
from nppr.flags import NO_FIT_DATA, NO_GRADIENTS
from nppr.measure import ProgressCallback, measure
from nppr.report.schema import Result, failed
from nppr.run.growth import Growth
from nppr.run.settings import Settings
from nppr.run_folder import RunFolder
from nppr.sources import Universal
from nppr.types import BoolArray, Evaluate, Metric, PerturbationSource, Tally

__all__ = ["Session"]

REASONS = {GradientError: NO_GRADIENTS, NoFitDataError: NO_FIT_DATA}
"""Errors after which a source is skipped, not failed."""


@dataclass
class Session:
    """Measures one source after the other on the same inputs; `growth` is that of a precision."""

    settings: Settings
    data: Data
    classifier: Prepared
    folder: RunFolder | None
    progress: ProgressCallback | None
    growth: Growth | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def measure(
        self,
        source: PerturbationSource,
        clean_correct: BoolArray,
        *,
        keep: dict[int, Tensor] | None = None,
        skip: BoolArray | None = None,
        stored: str | None = None,
    ) -> Tally[Evaluate]:
        """The tally of a source; its blocks are kept under its name, or under `stored`."""
        name = stored or source.name
        with self.timed(name):
            tally = measure(
                source,
                self.classifier,
                self.data.evaluate,
                draws=self.settings.draws,
                seed=self.settings.seed,
                clean_correct=clean_correct,
                quantise=self.settings.quantise,
                progress=self._telling(name),
                store=self._store(name),
                keep=keep,
                skip=skip,
            )
        # Where memory ran out the next source begins with what was left.
        self.classifier = replace(self.classifier, micro_batch=tally.micro_batch)
        return tally

    def ready(self, source: PerturbationSource) -> PerturbationSource:
        """The source with the data it must be fitted on, if it must."""
        if not isinstance(source, Universal) or not len(self.data.fit):
            return source
        return source.on(
            self.classifier.reference,
            self.data.fit,
            seed=self.settings.seed,
            device=self.classifier.device,
            progress=self.progress,
        )

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Adds the time a block takes to what a source took in this session."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + elapsed, 3)

    def failed(self, name: str, metric: Metric, error: Exception) -> Result:
        """The row of a source that could not be measured."""
        why = " ".join(str(error).split()) or type(error).__name__
        flags = tuple(flag for kind, flag in REASONS.items() if isinstance(error, kind))
        return failed(name, metric, self.settings.confidence, why, flags)

    def _telling(self, name: str) -> ProgressCallback | None:
        """Progress under the name that blocks are kept under."""
        tell = self.progress
        if tell is None:
            return None
        return lambda state: tell(replace(state, source=name))

    def _store(self, name: str) -> Store | None:
        if self.growth is not None:
            return self.growth.store(name)
        return self.folder.store(name) if self.folder else None
