"""Shards: parts of the evaluated inputs of one run, measured by several processes at a time.

Counts are keyed by input, so they do not depend on the division. The run measures the clean inputs
and fits everything that is fitted. Then `share_out` sends each process all planned measurements for its
part of the inputs. Each process keeps its finished blocks in a folder, `shards/PART-of-PARTS` in the
run folder. In the end they are merged with the blocks of the run, which continues as if it had measured
them itself. `--resume` measures what a shard did not finish.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from nppr.core.tally import BoolArray, IntArray, Metric, Progress
from nppr.data import Data
from nppr.errors import NpprError, RunFolderError, RunStopped
from nppr.measuring.blocks import Blocks, FileStore, Store
from nppr.measuring.measurement import measure, probe
from nppr.models import PreparedClassifier, prepare
from nppr.run.assessment_run import AssessmentRun, PlannedMeasurement
from nppr.run.resolve import Resolved
from nppr.run.run_folder import Division
from nppr.system.records import write_in_folder
from nppr.system.scheduler import Job, run_jobs
from nppr.system.specs import EAGER
from nppr.system.worker_pools import WorkerPool, pack

logger = logging.getLogger(__name__)

SHARDS = "shards"
PROGRESS_FILE = "progress.json"

SECONDS_BETWEEN_REPORTS = 1.0
"""How often a shard reports how far it is, and the run reads it."""

_FOLDER = re.compile(r"(\d+)-of-(\d+)")


@dataclass(frozen=True, eq=False)
class ShardWork:
    """All that a process needs to measure its part of the inputs."""

    resolve: Callable[[], Resolved]
    fingerprints: tuple[str, str]
    """Fingerprints of the classifier and of the evaluated inputs."""
    division: Division
    quantise: bool
    device: str
    chosen: IntArray
    """Dataset indices of the evaluated inputs."""
    clean_correct: BoolArray
    only_merged: bool
    planned: tuple[PlannedMeasurement, ...]
    identity: str
    folder: Path
    start_folder: str


@dataclass(frozen=True)
class _Part:
    """One part of the inputs, and the folder of its finished blocks."""

    shards: Path
    identity: str
    number: int
    parts: int

    @property
    def folder(self) -> Path:
        return self.shards / f"{self.number + 1}-of-{self.parts}"

    @property
    def progress(self) -> Path:
        return self.folder / PROGRESS_FILE

    def rows(self, planned: PlannedMeasurement) -> IntArray:
        return planned.rows(self.number, self.parts)

    def file(self, planned: PlannedMeasurement) -> FileStore:
        """Return the store of the blocks of a measurement in this part."""
        slug = re.sub(r"[^a-z0-9.=-]+", "_", planned.stored.lower())[:60]
        which = f"shard {self.number + 1} of {self.parts}, {planned.inputs} inputs"
        path = self.folder / f"{slug}.safetensors"
        return FileStore(path, f"{self.identity} {planned.stored} {which}")


@dataclass
class PartStore:
    """Blocks of the inputs at `rows`, kept in a file; blocks of other inputs are not kept."""

    rows: IntArray
    file: FileStore

    def load(self, inputs: int) -> Blocks | None:
        held = self.file.load(len(self.rows))
        return None if held is None else held.among(self.rows, inputs)

    def save(self, blocks: Blocks, *, now: bool) -> None:
        self.file.save(blocks.of(self.rows), now=now)


def share_out(run: AssessmentRun, planned: Sequence[PlannedMeasurement]) -> None:
    """Measure planned sources in shards, if the run has several workers; keep all in its stores."""
    if run.pool is None or not planned:
        return
    if run.folder is not None:
        _Sharing(run, run.pool, tuple(planned), run.folder.path.resolve() / SHARDS).measure()
        return
    with tempfile.TemporaryDirectory() as folder:
        _Sharing(run, run.pool, tuple(planned), Path(folder)).measure()


class _Sharing:
    """Planned measurements of a run, divided over its workers."""

    def __init__(
        self,
        run: AssessmentRun,
        pool: WorkerPool,
        planned: tuple[PlannedMeasurement, ...],
        folder: Path,
    ) -> None:
        self.run, self.pool, self.planned, self.folder = run, pool, planned, folder
        self.identity = run.folder.identity if run.folder else ""
        self.parts = [
            _Part(folder, self.identity, number, pool.slots) for number in range(pool.slots)
        ]

    def measure(self) -> None:
        """Measure everything that is not finished; raise `RunStopped` if a shard could not end."""
        run, parts = self.run, self.pool.slots
        self._merge()
        left = tuple(each for each in self.planned if self._is_open(each))
        if not left:
            return
        todo = self.planned if run.settings.only_merged else left
        work = self._pack(todo)
        jobs = []
        for part in self.parts:
            self._seed(todo, part)
            function = partial(measure_shard, work, part.number, parts)
            jobs.append(
                Job(str(part.number), function, label=f"shard {part.number + 1} of {parts}")
            )
        try:
            ended = run_jobs(jobs, self.pool, threads=1, tick=self._report)
        except BaseException:
            run.close_pool(interrupt=True)  # shards keep what they have finished
            self._merge()
            raise
        self._report()
        for name in {name for seconds in ended.results.values() for name in seconds}:
            slowest = max(seconds.get(name, 0.0) for seconds in ended.results.values())
            run.seconds[name] = round(run.seconds.get(name, 0.0) + slowest, 3)
        self._merge()
        if ended.failed:
            if run.folder is not None:
                run.folder.require_present()
            first, why = next(iter(ended.failed.items()))
            raise RunStopped(
                f"{len(ended.failed)} of {parts} shards could not be measured, shard"
                f" {int(first) + 1}: {why.rstrip('.')}."
            )

    def _pack(self, planned: tuple[PlannedMeasurement, ...]) -> bytes:
        run = self.run
        assert run.request is not None
        ready, split = run.classifier, run.data.evaluate
        work = ShardWork(
            resolve=run.request,
            fingerprints=(run.record.classifier.fingerprint, split.fingerprint()),
            division=Division(ready.micro_batch, ready.speedups, engine=ready.engine),
            quantise=ready.quantise,
            device=str(ready.device),
            chosen=split.indices,
            clean_correct=run.clean_correct,
            only_merged=run.settings.only_merged,
            planned=planned,
            identity=self.identity,
            folder=self.folder,
            start_folder=os.getcwd(),
        )
        return pack(work)

    def _store(self, planned: PlannedMeasurement) -> Store:
        found = self.run.store_of(planned)
        assert found is not None
        return found

    def _is_open(self, planned: PlannedMeasurement) -> bool:
        """Whether some of its blocks are not measured yet."""
        held = self._store(planned).load(planned.inputs)
        return held is None or bool((held.finished < planned.blocks).any())

    def _seed(self, planned: Sequence[PlannedMeasurement], part: _Part) -> None:
        """Give a shard the blocks that its inputs have already."""
        part.folder.mkdir(parents=True, exist_ok=True)
        for each in planned:
            rows, file = part.rows(each), part.file(each)
            if self.run.folder is not None:
                self.run.folder.list_files(file.path, part.progress)
            held = self._store(each).load(each.inputs)
            if held is not None and held.finished[rows].any():
                file.save(held.of(rows), now=True)

    def _merge(self) -> None:
        """Move the blocks of all shards, of this division or of another, to the stores of the run."""
        for place in sorted(self.folder.glob("*-of-*")):
            match = _FOLDER.fullmatch(place.name)
            if match is None or place.is_symlink():
                continue
            part = _Part(self.folder, self.identity, int(match[1]) - 1, int(match[2]))
            for planned in self.planned if 0 <= part.number < part.parts else ():
                rows, file = part.rows(planned), part.file(planned)
                held = file.load(len(rows)) if len(rows) else None
                if held is not None:
                    _merge_into(self._store(planned), held, rows, planned.inputs)
                file.path.unlink(missing_ok=True)
            part.progress.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # a file of somebody else stays
                part.folder.rmdir()
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _report(self) -> None:
        if self.run.progress is None:
            return
        whole: dict[str, list[int]] = {}
        for part in self.parts:
            for name, counts in _read_progress(part.progress).items():
                known = whole.get(name, [0, 0])
                whole[name] = [before + more for before, more in zip(known, counts, strict=True)]
        totals = {each.stored: each.inputs * each.draws for each in self.planned}
        for name, (done, correct) in whole.items():
            total = max(totals.get(name, done), done)
            self.run.progress(Progress(name, done, total, correct))


def _merge_into(store: Store, held: Blocks, rows: IntArray, inputs: int) -> None:
    """Add the blocks of some inputs to a store; of each input, keep the most advanced.

    If the model contradicted the screening of one part, the counts of all parts are made exactly.
    """
    whole = store.load(inputs) or Blocks.none(inputs)
    merged = Blocks.merged([whole, held.among(rows, inputs)])
    if merged.must_be_exact and not bool(merged.audit[:, 3].all()):
        exact = np.flatnonzero(merged.audit[:, 3])
        kept = merged.of(exact)
        merged = Blocks.discarded(inputs)
        merged.put(exact, kept)
    store.save(merged, now=True)


def _read_progress(path: Path) -> dict[str, list[int]]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass
class _Reporter:
    """Writes how far a shard is, so that the process of the run can show it."""

    path: Path
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    _written: float = 0.0

    def report(self, state: Progress, name: str, others: int) -> None:
        """`others` are draws of inputs that are not of this shard, which count as done."""
        self.counts[name] = (state.done - others, state.correct)
        now = time.monotonic()
        if now - self._written >= SECONDS_BETWEEN_REPORTS or state.done >= state.total:
            self._written = now
            write_in_folder(self.path, json.dumps(self.counts))


_opened: dict[int, tuple[Data, PreparedClassifier]] = {}
"""What this process has loaded last, by a hash of what it was asked for."""


def measure_shard(packed: bytes, part: int, parts: int) -> dict[str, float]:
    """Measure all sources on a part of the inputs; return the seconds that each took."""
    work: ShardWork = pickle.loads(packed)
    with contextlib.suppress(OSError):
        os.chdir(work.start_folder)
    data, classifier = _open(work)
    split = data.evaluate
    broken = ~work.clean_correct
    place = _Part(work.folder, work.identity, part, parts)
    reporter = _Reporter(place.progress)
    seconds: dict[str, float] = {}
    for each in work.planned:
        rows = place.rows(each)
        if not len(rows):
            continue
        skipped = np.ones(each.inputs, bool)
        skipped[rows] = False
        if work.only_merged and each.source.metric is Metric.AR:
            skipped |= broken
        own = replace(
            split, indices=split.indices[: each.inputs], labels=split.labels[: each.inputs]
        )
        others = (each.inputs - len(rows)) * each.draws
        start = time.perf_counter()
        try:
            tally = measure(
                each.source,
                classifier,
                own,
                draws=each.draws,
                seed=each.seed,
                clean_correct=work.clean_correct[: each.inputs],
                progress=partial(reporter.report, name=each.stored, others=others),
                store=PartStore(rows, place.file(each)),
                skip=skipped,
            )
        except (RunStopped, RunFolderError):
            raise
        except Exception:  # the process of the run measures it again and states why
            logger.debug("%s failed in a shard", each.stored, exc_info=True)
            continue
        own_time = seconds.get(each.timed_as, 0.0) + time.perf_counter() - start
        seconds[each.timed_as] = own_time
        if each.source.budget is not None and tally.is_exact and not each.is_check:
            broken = broken | ~tally.unbroken
    return seconds


def _open(work: ShardWork) -> tuple[Data, PreparedClassifier]:
    """Load the data and the classifier, and check that they are the same as in the run."""
    variant = work.division, work.quantise, work.device
    key = hash((work.identity, work.fingerprints, work.chosen.tobytes(), variant))
    if key in _opened:
        return _opened[key]
    resolved = work.resolve()
    whole = resolved.data.evaluate
    order = np.argsort(whole.indices)
    found = np.searchsorted(whole.indices, work.chosen, sorter=order)
    if len(whole) < len(work.chosen) or (found >= len(whole)).any():
        raise NpprError("`data` must be the same in all processes, but a shard found fewer inputs.")
    at = order[found]
    split = replace(whole, indices=whole.indices[at], labels=whole.labels[at])
    data = replace(resolved.data, evaluate=split)
    classifier = prepare(
        resolved.classifier,
        probe(whole),
        classes=data.classes,
        device=work.device,
        micro_batch=work.division.micro_batch,
        speedups=work.division.form,
        engine=work.division.engine or EAGER,
    )
    known, inputs = work.fingerprints
    if resolved.classifier.fingerprint() not in (None, known) or split.fingerprint() != inputs:
        raise NpprError(
            "`model` and `data` must be the same in all processes, a shard found others."
        )
    _opened.clear()
    _opened[key] = data, replace(classifier, quantise=work.quantise)
    return _opened[key]
