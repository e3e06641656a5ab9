"""The only loop that measures: `measure(source, classifier, part) -> Tally`.

For every input and draw: ask the source for a perturbation, check it against the budget, add it, clip
to [0, 1], and ask the classifier. The counts do not depend on the micro-batch, on the form in which
the classifier runs, on the number of processes, or on interruptions: draws are keyed by input, and
where the two largest logits are too close for rounding not to matter, the answer is that of the model
as given, on that image alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.checkpoint import Blocks, Store
from nppr.classifiers import Classifier, FrozenForms, Prepared, is_out_of_memory, prepare
from nppr.data import Part
from nppr.distributed import gathered, together, world
from nppr.errors import DataError, SpecError
from nppr.measure.job import Job, ProgressCallback, probe
from nppr.measure.judge import judge
from nppr.measure.ranks import Teller, exchange_kept, own_inputs
from nppr.sources import Clean
from nppr.sources.universal import UniversalOn
from nppr.types import BoolArray, FloatArray, IntArray, PerturbationSource, Split, Tally

__all__ = ["measure"]

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Split)


def measure(
    source: PerturbationSource,
    classifier: Classifier | Prepared,
    part: Part[S],
    *,
    classes: int | None = None,
    draws: int = 100,
    seed: int = 0,
    clean_correct: BoolArray | None = None,
    quantise: bool = False,
    progress: ProgressCallback | None = None,
    store: Store | None = None,
    keep: dict[int, Tensor] | None = None,
    skip: BoolArray | None = None,
) -> Tally[S]:
    """Measure a source on all inputs of a part, `draws` times each.

    `classes` is needed only where `classifier` is not prepared yet. `clean_correct` is measured first
    where it is not given. Finished blocks go to `store`, and those found there are not run again.
    A source of one draw leaves the features of the images it judged in `keep`, by dataset index.
    Inputs in `skip` are not run and count as wrong. Several ranks divide the inputs among them, and
    every one of them gets the whole tally.
    """
    if draws < 1:
        raise SpecError(f"`draws` must be a whole number >= 1, got {draws}.")
    if not len(part):
        raise DataError(f"the {part.kind.name} part must hold at least one input, got none.")
    if isinstance(classifier, Classifier):
        known = classes or int(part.labels.max()) + 1
        classifier = prepare(classifier, probe(part), classes=known)
    if clean_correct is None:
        clean = measure(
            Clean(), classifier, part, clean_correct=np.zeros(len(part), bool), quantise=quantise
        )
        clean_correct = clean.right == 1
    draws = source.fixed_draws or draws
    pixels = probe(part)[0].numel()
    job = Job(source, classifier, part, pixels, draws, seed, quantise, keep)
    with together(), classifier.frozen(quantise=quantise) as models:
        blocks, micro_batch = _run(job, models, progress, store, skip)
    return Tally(
        kind=part.kind,
        indices=part.indices,
        labels=part.labels,
        clean_correct=clean_correct,
        right=blocks.right,
        draws=draws,
        calls=int(blocks.calls.sum()),
        micro_batch=micro_batch,
        sums=blocks.sums if blocks.sums.size else None,
    )


def _run(
    job: Job,
    models: FrozenForms,
    progress: ProgressCallback | None,
    store: Store | None,
    skip: BoolArray | None,
) -> tuple[Blocks, int]:
    """All blocks of all inputs; and the micro-batch it ended with."""
    inputs = len(job.part)
    begun = gathered(((store.load(inputs) if store else None), job.classifier.micro_batch))
    blocks = Blocks.merged([each or Blocks.none(inputs) for each, _ in begun])
    smallest = min(micro_batch for _, micro_batch in begun)
    job = replace(job, classifier=replace(job.classifier, micro_batch=smallest))
    if skip is not None:
        blocks.finished[skip] = job.blocks
    if isinstance(job.source, UniversalOn) and bool((blocks.finished < job.blocks).any()):
        job.source.make_ready()  # all ranks fit it together, before each goes its way
    own = own_inputs(job, blocks)
    tell = Teller.of(job, blocks, own, progress if world().is_first else None)
    smallest = _run_own(job, models, own, blocks, tell, store)
    ended = gathered((blocks, smallest))
    blocks = Blocks.merged([each for each, _ in ended])
    if store:
        store.finish(blocks)
    if job.keep is not None:
        exchange_kept(job, job.keep)
    return blocks, min(micro_batch for _, micro_batch in ended)


def _run_own(
    job: Job,
    models: FrozenForms,
    own: IntArray,
    blocks: Blocks,
    tell: Teller,
    store: Store | None,
) -> int:
    """All blocks of this rank's inputs, in chunks of inputs; the micro-batch it ended with."""
    committing = False
    start = 0
    try:
        while start < len(own):
            chunk = own[start : start + job.inputs_at_once]
            try:
                for done in _chunk(job, models, chunk, blocks):
                    committing = True
                    _commit(blocks, done)
                    committing = False
                    tell(blocks)
                    if store:
                        store.save(blocks, now=False)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or job.classifier.micro_batch == 1:
                    raise
                job = replace(job, classifier=_halved(job.classifier))
                continue
            start += len(chunk)
    finally:
        # An interrupt between two lines of a commit must not be kept; the file before it is.
        if store and not committing:
            store.save(blocks, now=True)
    return job.classifier.micro_batch


@dataclass(frozen=True, eq=False)
class _Done:
    """A finished block of some inputs."""

    positions: IntArray
    block: int
    right: IntArray
    calls: int
    sums: FloatArray | None = None


def _chunk(job: Job, models: FrozenForms, chunk: IntArray, blocks: Blocks) -> Iterator[_Done]:
    """Run the unfinished blocks of some inputs."""
    if bool((blocks.finished[chunk] == job.blocks).all()):
        return
    images, labels = job.part.batch(chunk)
    images, labels = images.to(job.classifier.device), labels.to(job.classifier.device)
    for block in range(job.blocks):
        todo = np.flatnonzero(blocks.finished[chunk] <= block)
        if len(todo):
            rows = torch.from_numpy(todo).to(images.device)
            draws = job.draw_block(chunk[todo], block)
            before = models.fast.calls
            right, sums = judge(job, models, images[rows], labels[rows], draws)
            yield _Done(chunk[todo], block, right, models.fast.calls - before, sums)


def _commit(blocks: Blocks, done: _Done) -> None:
    """Add a finished block. Calls are shared out over its inputs; what was observed are logarithms."""
    blocks.right[done.positions] += done.right
    each, more = divmod(done.calls, len(done.positions))
    blocks.calls[done.positions] += each
    blocks.calls[done.positions[:more]] += 1
    _add(blocks, done)
    blocks.finished[done.positions] = done.block + 1


def _add(blocks: Blocks, done: _Done) -> None:
    if done.sums is None:
        return
    if not blocks.sums.size:
        blocks.sums = np.full((len(blocks.right), done.sums.shape[1]), -np.inf)
    blocks.sums[done.positions] = np.logaddexp(blocks.sums[done.positions], done.sums)


def _halved(classifier: Prepared) -> Prepared:
    smaller = classifier.micro_batch // 2
    logger.warning("out of memory: going on with a micro-batch of %d", smaller)
    return replace(classifier, micro_batch=smaller)
