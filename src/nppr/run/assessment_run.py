"""One assessment: a classifier on its data, measured with one source after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from nppr.core.budget import Budget
from nppr.core.random_draws import DRAWS_PER_BLOCK
from nppr.core.tally import BoolArray, Estimate, Evaluate, IntArray, Metric, Tally
from nppr.data import Data
from nppr.doctor.flags import NO_FIT_DATA, NO_GRADIENTS
from nppr.errors import (
    ClassifierError,
    GradientError,
    NoFitDataError,
    NpprError,
    RunStopped,
    SpecError,
)
from nppr.measuring.blocks import GrowingStore, Store
from nppr.measuring.measurement import measure, probe
from nppr.models import (
    Classifier,
    PreparedClassifier,
    is_out_of_memory,
    prepare,
    prepare_for_search,
    with_rough_gradients,
)
from nppr.noise.rungs import Known
from nppr.noise.structures import choose_length, has_positions
from nppr.report.number import MergedSubject, Number, Subject
from nppr.run.make_numbers import make_number, make_numbers, make_subject
from nppr.run.progress import ShowProgress
from nppr.run.resolve import Resolved
from nppr.run.run_folder import Division, RunFolder
from nppr.run.run_record import RunRecord, describe_run, require_suitable
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import NoiseSearch
from nppr.search.search_settings import AUTO, SCORES, SearchSettings
from nppr.settings import Measure, Run
from nppr.sources import Clean, Source, references
from nppr.sources.per_input_noise import PerInputNoise
from nppr.statistics.estimates import (
    SEQUENCE,
    estimate_adversarial,
    estimate_probabilistic,
    merge_attacks,
)
from nppr.statistics.intervals import Interval
from nppr.system.specs import EAGER
from nppr.system.worker_pools import WorkerPool, open_pool, pack

logger = logging.getLogger(__name__)

SKIPPED = {GradientError: NO_GRADIENTS, NoFitDataError: NO_FIT_DATA}
"""Errors after which a source is skipped, not failed."""

LADDER = "ladder"
"""The name under which the time of all checks of rungs is reported."""


@dataclass(frozen=True, eq=False)
class PlannedMeasurement:
    """A source to measure, the name its blocks are kept under, and on how many of the first inputs."""

    source: Source
    stored: str
    inputs: int
    draws: int
    seed: int
    is_check: bool = False
    """It checks a rung, beside the measurement of its source; its time is that of the ladder."""

    @property
    def timed_as(self) -> str:
        """The entry of the report that its time is added to."""
        return LADDER if self.is_check else self.stored

    @property
    def blocks(self) -> int:
        return -(-self.draws // min(DRAWS_PER_BLOCK, self.source.fixed_draws or DRAWS_PER_BLOCK))

    def rows(self, part: int, parts: int) -> IntArray:
        size = self.source.inputs_at_once or 1
        ends = [
            min(self.inputs, round(number * self.inputs / (parts * size)) * size)
            for number in range(parts)
        ]
        return np.arange(ends[part], [*ends, self.inputs][part + 1])


@dataclass(eq=False)
class AssessmentRun:
    """A classifier, data and a run folder, ready for work; measures sources on the same inputs.

    A run with a wanted precision increases `data` and `settings.draws`, keeps its blocks in its
    `store`, and has intervals that hold whenever it is `stopped`.
    """

    settings: Measure
    data: Data
    budget: Budget
    classifier: PreparedClassifier
    record: RunRecord
    feature_model: Classifier | None = None
    searching: PreparedClassifier | None = None
    """The classifier as the search runs it, if the run has one."""
    folder: RunFolder | None = None
    finished: bool = False
    """The folder holds this run already, complete: results are read from it."""
    progress: ShowProgress | None = None
    store: Callable[[str], Store] | None = None
    stopped: Callable[[Tally[Evaluate], int], Interval] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    pool: WorkerPool | None = None
    """The processes that measure shards, if there are several."""
    request: Callable[[], Resolved] | None = None
    """Resolves data and classifier in another process."""
    held: dict[str, GrowingStore] = field(default_factory=dict)
    """Blocks of shards of a run without a folder."""
    fits: dict[tuple[str, float | None], Source] = field(default_factory=dict)
    """Sources fitted so far, by name and radius."""
    clean: Tally[Evaluate] = field(init=False)
    clean_correct: BoolArray = field(init=False)
    numbers: list[Number] = field(default_factory=list)
    tallies: dict[str, Tally[Evaluate]] = field(default_factory=dict)
    inside: list[Source] = field(default_factory=list)
    """Measured sources that stay in the budget."""
    learned: list[LearnedNoise] = field(default_factory=list)
    own: list[PerInputNoise] = field(default_factory=list)
    """The rung `per-input` of every floor."""

    @classmethod
    def open(
        cls,
        resolved: Resolved,
        budget: Budget,
        settings: Measure,
        *,
        sources: Sequence[Source] = (),
        search: SearchSettings | None = None,
        distributions: Sequence[LearnedNoise] = (),
        run: Run | None = None,
    ) -> AssessmentRun:
        """Make everything ready for these sources and this search; with `run.out`, take its folder.

        A folder that holds this run complete is resumed: its numbers are read, not computed again.
        A classifier that is prepared already runs as it is.
        """
        run = run or Run()
        data, out = resolved.data, run.out
        shared = run.ray is not None or (run.workers or 1) > 1
        if run.ray is not None and out is None:
            raise SpecError(
                "`ray` must be given with `out`, a folder that all machines of the cluster see."
                " Example: --out runs/mine"
            )
        require_suitable(data, budget, settings, sources)
        finished = out is not None and not run.overwrite and RunFolder.is_finished(out)
        resume = run.resume or finished
        division = RunFolder.division(out) if resume and out is not None else Division()
        threads = division.threads or torch.get_num_threads()
        if threads != torch.get_num_threads():  # it would round a fit otherwise
            torch.set_num_threads(threads)
        if run.batch_size is not None:
            division = replace(division, micro_batch=run.batch_size)
        examples = probe(data.evaluate)

        def prepared(engine: str) -> PreparedClassifier:
            return prepare(
                resolved.classifier, examples, classes=data.classes, device=run.device,
                micro_batch=division.micro_batch, speedups=division.form, engine=engine,
            )  # fmt: skip

        try:
            ready = resolved.prepared or prepared(division.engine or settings.engine)
        except ClassifierError:  # an engine of the division may not run here
            if division.engine is None:
                raise
            ready = prepared(EAGER)
        ready = replace(ready, quantise=settings.quantise)
        searching = None
        if search is not None:
            exact = search.method == SCORES or ready.engine == EAGER
            rough = (False if exact else None) if division.rough is None else division.rough
            searching = with_rough_gradients(prepare_for_search(ready, examples), examples, rough)
        record = describe_run(
            resolved, ready, budget, settings, sources=sources, search=search,
            distributions=distributions,
        )  # fmt: skip
        folder = None
        if out is not None:
            known = record.model_dump(
                mode="json", exclude={"noise_samples"}
            )  # sources name the frames
            identity = {**known, "device": ready.device.type}
            used = Division(
                ready.micro_batch,
                ready.speedups,
                torch.get_num_threads(),
                ready.engine,
                rough=searching is not None and searching.fast.bfloat16_copy is not None,
            )
            folder = RunFolder.open(out, identity, used, resume=resume, overwrite=run.overwrite)
        made = cls(
            settings, data, budget, ready, record, resolved.feature_model, searching, folder,
            finished, request=resolved.request,
        )  # fmt: skip
        if shared and not finished and resolved.request is not None:
            try:
                made.pool = open_pool(run.workers, run.ray)
                if made.pool.slots > 1:
                    pack((resolved.request, sources))  # before anything is measured
            except BaseException:
                made.close()
                raise
        return made

    def __enter__(self) -> AssessmentRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(interrupt=kind is not None)

    def close(self, *, interrupt: bool = False) -> None:
        """Release the processes of shards and the folder."""
        self.close_pool(interrupt=interrupt)
        if self.folder is not None:
            self.folder.close()

    def close_pool(self, *, interrupt: bool) -> None:
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.close(interrupt=interrupt)

    @property
    def resolved(self) -> Resolved:
        """The same classifier and data, for another run."""
        return Resolved(
            self.data, self.classifier.original, self.feature_model, self.budget, self.classifier
        )

    @cached_property
    def fixed(self) -> PreparedClassifier:
        """The classifier as a search runs it, with exact answers; it does not depend on the clock."""
        known = self.searching
        if known is None or known.screening is not None:
            return prepare_for_search(
                known or self.classifier, probe(self.data.evaluate), exact=True
            )
        return replace(known, fast=known.fast.with_bfloat16_copy(None))

    def search(self, settings: SearchSettings, given: Sequence[LearnedNoise] = ()) -> NoiseSearch:
        """Make the search for the worst noise of this classifier, beside noise that is given.

        It rounds the same way in every run: form and micro-batch are not the fastest by the clock.
        Noise that cannot see features, because the model shows none, may see the label only.
        """
        if self.lacks_features(settings):
            settings = settings.without(Known.FEATURES)
        if self.data.classes == 1:
            settings = settings.without(Known.LABEL)
        shape = self.budget.domain(self.data.shape)
        if not has_positions(shape):
            settings = settings.without_positions()
        else:
            choose_length(shape, settings.family.correlation_length)  # before anything is fitted
        box = self.budget.transform is not None
        if box:
            settings = settings.in_box()
        by_itself = settings.method == AUTO and settings.walks and not self.gives_gradients
        if settings.method == SCORES or by_itself:
            settings = settings.by_scores(box=box)
        return NoiseSearch(
            settings=settings,
            classifier=self.searching or self.fixed,
            data=self.data,
            budget=self.budget,
            described=self.record.classifier,
            seed=self.settings.seed,
            feature_model=self.feature_model,
            folder=self.folder.path / "fit" if self.folder else None,
            identity=self.folder.identity if self.folder else "",
            before_write=self.folder.list_files if self.folder else None,
            progress=self.progress,
            given=given,
            references=references(self.budget),
        )

    @cached_property
    def gives_gradients(self) -> bool:
        """Whether classifier and budget give gradients in a perturbation."""
        x, y = (each.to(self.classifier.device) for each in self.data.evaluate.batch(np.arange(1)))
        delta = x.new_zeros(len(x), *self.budget.domain(self.data.shape))
        try:
            with self.classifier.frozen() as models:
                model = models.fast
                self.budget.gradient(model, lambda z: model.to_classes(z, y)[0].sum(1), x, delta)
        except (GradientError, ClassifierError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            return False
        return True

    def lacks_features(self, settings: SearchSettings | None) -> bool:
        """Whether the model shows no features, and the noise asked for may see something else too."""
        if settings is None or self.record.classifier.features is not None:
            return False
        asked = settings.family.dependency
        return asked.sees_input and bool(asked.without(Known.FEATURES).knows)

    def measure_clean(self, *, keep: bool) -> dict[int, Tensor] | None:
        """Measure the clean inputs; with `keep`, return their features by dataset index."""
        everything = np.ones(len(self.data.evaluate), bool)
        features: dict[int, Tensor] | None = {} if keep else None
        source = Clean()
        self.clean = self.tally(self.plan(source), everything, keep=features)
        self.clean_correct = self.clean.correct == 1
        if features is not None and len(features) < len(everything):  # it was resumed
            split = self.data.evaluate
            measure(source, self.classifier, split, clean_correct=everything, keep=features)
        self.numbers = self.read(source, self.clean)
        return features

    def measure(self, source: Source) -> None:
        """Measure a source and read its numbers; if it fails, its number states why."""
        settings = self.settings
        try:
            tally = self.tally(self.plan(source), skip=self._broken(source))
            if not (settings.only_merged and source.metric is Metric.AR):
                self.numbers += self.read(source, tally)
            self.tallies[source.name] = tally
            if source.budget is not None:
                self.inside.append(source)
        except RunStopped:
            raise
        except Exception as error:  # whatever a source does, the others' results are kept
            self.numbers.append(self.failed(source, error))

    def measure_learned(self, learned: LearnedNoise) -> None:
        """Measure learned noise; if it was compared with the reference noises here, with them too."""
        self.measure(learned.source)
        source, measured = learned.source, learned.source.name
        # On another classifier or at another radius nothing was compared on the select split.
        if measured not in self.tallies or not learned.was_compared(
            self.record.classifier.fingerprint
        ):
            return
        if learned.winner:
            noise = next(each for each in references(source.budget) if each.name == learned.winner)
            measured = noise.name
            tally = self.tallies.get(measured) or self.tally(self.plan(noise))
        else:
            tally = self.tallies[measured]
        settings = self.settings
        found = estimate_probabilistic(tally, settings.confidence, Metric.NPPR, settings.seed)
        known = self.after_stopping(found, tally)
        for row in make_numbers(source, known, with_references=True):
            kept = measured if measured in self.tallies else None
            self.numbers.append(row.model_copy(update={"tally": kept}))

    def merge(self) -> None:
        """Add AR over all sources of the budget, if there is an attack and something to merge.

        Screened counts take no part: one wrong decision would break an input.
        """
        settings = self.settings
        exact = [each for each in self.inside if self.tallies[each.name].is_exact]
        attacked = any(source.metric is Metric.AR for source in exact)
        if not attacked or not (len(exact) > 1 or settings.only_merged):
            return
        tally = merge_attacks([self.tallies[source.name] for source in exact])
        budget = self.inside[0].budget
        subject = MergedSubject(radius=budget.radius if budget else None)
        try:
            self.numbers.append(
                make_number(subject, estimate_adversarial(tally, settings.confidence))
            )
        except NpprError as error:  # no input is clean-correct
            self.numbers.append(self.without_value(subject, Metric.AR, error))

    def _broken(self, source: Source) -> BoolArray | None:
        """Return the inputs that need not be attacked, if only merged AR is wanted."""
        if not self.settings.only_merged or source.metric is not Metric.AR:
            return None
        broken = ~self.clean_correct
        for each in self.inside:
            if self.tallies[each.name].is_exact:
                broken = broken | ~self.tallies[each.name].unbroken
        return broken

    def plan(
        self,
        source: Source,
        stored: str | None = None,
        *,
        inputs: int | None = None,
        draws: int | None = None,
        seed: int | None = None,
    ) -> PlannedMeasurement:
        """Plan a measurement of a source on all inputs, or on the first ones."""
        settings = self.settings
        return PlannedMeasurement(
            source,
            stored or source.name,
            len(self.data.evaluate) if inputs is None else inputs,
            source.fixed_draws or draws or settings.draws or 1,
            settings.seed if seed is None else seed,
            is_check=inputs is not None,
        )

    def store_of(self, planned: PlannedMeasurement) -> Store | None:
        """Return the store of the blocks of a measurement; None if they are not kept."""
        name = planned.stored
        if self.store is not None and not planned.is_check:
            return self.store(name)
        if self.folder is not None:
            return self.folder.store(name)
        if self.pool is None:
            return self.held.get(name)
        return self.held.setdefault(name, GrowingStore(np.arange(planned.inputs), planned.inputs))

    def tally(
        self,
        planned: PlannedMeasurement,
        clean_correct: BoolArray | None = None,
        *,
        keep: dict[int, Tensor] | None = None,
        skip: BoolArray | None = None,
    ) -> Tally[Evaluate]:
        """Return the tally of a planned measurement; blocks of shards are not measured again."""
        name, progress, split = planned.stored, self.progress, self.data.evaluate
        first = slice(planned.inputs)
        with self.timed(planned.timed_as):
            tally = measure(
                planned.source,
                self.classifier,
                replace(split, indices=split.indices[first], labels=split.labels[first]),
                draws=planned.draws,
                seed=planned.seed,
                clean_correct=(self.clean_correct if clean_correct is None else clean_correct)[
                    first
                ],
                progress=(lambda at: progress(replace(at, source=name))) if progress else None,
                store=self.store_of(planned),
                keep=keep,
                skip=skip,
            )
        # Where memory ran out the next source begins with what was left.
        self.classifier = replace(self.classifier, micro_batch=tally.micro_batch)
        return tally

    def fitted(self, source: Source) -> Source:
        """Return the source, fitted on the fit split if it must be and there is one."""
        if not source.needs_fit_split or not len(self.data.fit):
            return source
        key = source.name, source.budget.radius if source.budget else None
        if key not in self.fits:
            self.fits[key] = source.fitted_on(
                self.classifier.original, self.data.fit, seed=self.settings.seed,
                device=self.classifier.device, progress=self.progress,
            )  # fmt: skip
        return self.fits[key]

    def read(self, source: Source, tally: Tally[Evaluate]) -> list[Number]:
        """Return the numbers of a source; bounds need a size that does not depend on the results."""
        found = source.read(tally, self.clean, self.settings.confidence, self.settings.seed)
        if self.stopped is not None and source.metric is not Metric.BOUND:
            found = [row for row in found if row.metric is not Metric.BOUND]
        return make_numbers(source, self.after_stopping(found, tally))

    def after_stopping(
        self, estimates: Sequence[Estimate], tally: Tally[Evaluate]
    ) -> list[Estimate]:
        """Add, in front, the interval by whose width the run stopped, if it stopped by its widths."""
        first = estimates[0]
        if self.stopped is None or not first.metric.is_drawn:
            return list(estimates)
        ends = vars(self.stopped(tally, 1))
        return [replace(first, method=SEQUENCE, flags=(), **ends), *estimates]

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of a block to the time of a source."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = round(self.seconds.get(name, 0.0) + elapsed, 3)

    def failed(self, source: Source, error: Exception) -> Number:
        """Return the number of a source that could not be measured."""
        return self.without_value(make_subject(source, source.metric), source.metric, error)

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
