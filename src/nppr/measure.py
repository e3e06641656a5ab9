"""The only loop that measures: `measure(source, classifier, part) -> Tally`.

For every input and draw: ask the source for a perturbation, check it against the budget, add it, clip
to [0, 1], and ask the classifier. The counts do not depend on the micro-batch, on the form in which
the classifier runs, on the number of processes, or on interruptions: draws are keyed by input, and
where the two largest logits are too close for rounding not to matter, the answer is that of the model
as given, on that image alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.budget import perturbed
from nppr.checkpoint import Blocks, Store
from nppr.classifiers import Classifier, Prepared, prepare
from nppr.classifiers.checking import check_finite
from nppr.classifiers.prepare import AGREEMENT, FrozenForms
from nppr.classifiers.wrap import is_out_of_memory
from nppr.data import Part
from nppr.data.base import PROBE_INPUTS
from nppr.distributed import gathered, joined, share, together, world
from nppr.draws import DRAWS_PER_BLOCK, DrawBlock
from nppr.errors import DataError, SpecError
from nppr.sources import Clean
from nppr.sources.universal import UniversalOn
from nppr.types import (
    BoolArray,
    FloatArray,
    Grouping,
    IntArray,
    Observing,
    PerturbationSource,
    Progress,
    Split,
    Tally,
)

__all__ = ["ProgressCallback", "measure", "probe"]

logger = logging.getLogger(__name__)

NUMBERS_AT_ONCE = 2**20
"""Numbers in the perturbed images that are made together, unless a micro-batch has more."""

S = TypeVar("S", bound=Split)
ProgressCallback = Callable[[Progress], None]


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
    job = _Job(source, classifier, part, pixels, draws, seed, quantise, keep)
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


def probe(part: Part[S]) -> Tensor:
    """The first inputs of a part, for checking and timing a classifier."""
    x, _ = part.batch(np.arange(min(PROBE_INPUTS, len(part))))
    return x


@dataclass(frozen=True)
class _Job:
    """What is measured; `capacity` draws make a block."""

    source: PerturbationSource
    classifier: Prepared
    part: Part[Split]
    pixels: int
    draws: int
    seed: int
    quantise: bool
    keep: dict[int, Tensor] | None = None

    @property
    def capacity(self) -> int:
        return min(DRAWS_PER_BLOCK, self.source.fixed_draws or DRAWS_PER_BLOCK)

    @property
    def blocks(self) -> int:
        return -(-self.draws // self.capacity)

    @property
    def inputs_at_once(self) -> int:
        """Inputs whose draws are made together: a micro-batch, or more where images are small.

        The classifier meets micro-batches all the same; what is around it then costs little. A source
        that calls the classifier itself gets a micro-batch.
        """
        if isinstance(self.source, Grouping):
            return self.source.inputs_at_once
        images, draws = self.classifier.micro_batch, min(self.capacity, self.draws)
        if self.source.cost <= 1:
            images = max(images, NUMBERS_AT_ONCE // self.pixels)
        return max(1, images // draws // self._filling * self._filling or images // draws)

    @property
    def inputs_together(self) -> int:
        """Inputs that stay on one rank: the classifier meets the same micro-batches on any number."""
        divisible = self.source.cost <= 1 and not isinstance(self.source, Grouping)
        return self._filling if divisible else self.inputs_at_once

    @property
    def _filling(self) -> int:
        """How many inputs fill micro-batches."""
        micro_batch = self.classifier.micro_batch
        return micro_batch // math.gcd(micro_batch, min(self.capacity, self.draws))

    def draws_done(self, blocks: Blocks) -> IntArray:
        """Draws of every input that are measured."""
        return np.minimum(blocks.finished * self.capacity, self.draws)

    def draw_block(self, positions: IntArray, block: int) -> DrawBlock:
        return DrawBlock(
            seed=self.seed,
            split=self.part.kind.name,
            indices=tuple(self.part.indices[positions].tolist()),
            block=block,
            size=min(self.capacity, self.draws - block * self.capacity),
            device=self.classifier.device,
            capacity=self.capacity,
        )


def _run(
    job: _Job,
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
    own = _own_inputs(job, blocks)
    tell = _Teller.of(job, blocks, own, progress if world().is_first else None)
    smallest = _run_own(job, models, own, blocks, tell, store)
    ended = gathered((blocks, smallest))
    blocks = Blocks.merged([each for each, _ in ended])
    if store:
        store.finish(blocks)
    if job.keep is not None:
        _exchange_kept(job, job.keep)
    return blocks, min(micro_batch for _, micro_batch in ended)


def _own_inputs(job: _Job, blocks: Blocks) -> IntArray:
    """The inputs of this rank: as much work as the others have, in the pieces of one process."""
    everything = np.arange(len(job.part))
    pieces = np.split(everything, everything[job.inputs_together :: job.inputs_together])
    left = [int((job.blocks - blocks.finished[piece]).sum()) for piece in pieces]
    own = [pieces[number] for number in share(left)]
    return np.concatenate([everything[:0], *own])


def _exchange_kept(job: _Job, keep: dict[int, Tensor]) -> None:
    """Give every rank the features that the others saw."""
    if world().size == 1:
        return
    indices = [index for each in gathered(list(keep)) for index in each]
    if indices:
        rows = [torch.stack(list(keep.values()))] if keep else []
        features = joined(rows, job.classifier.device)
        keep.update(zip(indices, features.unbind(), strict=True))


def _run_own(
    job: _Job,
    models: FrozenForms,
    own: IntArray,
    blocks: Blocks,
    tell: _Teller,
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


def _chunk(job: _Job, models: FrozenForms, chunk: IntArray, blocks: Blocks) -> Iterator[_Done]:
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
            right, sums = _judge(job, models, images[rows], labels[rows], draws)
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


def _judge(
    job: _Job, models: FrozenForms, x: Tensor, y: Tensor, draws: DrawBlock
) -> tuple[IntArray, FloatArray | None]:
    """How many of the draws of each input are right, `(B,)`, and what the source observed."""
    delta = job.source.perturb(models.fast, x, y, draws)
    _check_perturbations(job.source, delta, (len(x), draws.size, *x.shape[1:]))
    moved = perturbed(x.unsqueeze(1), delta, quantise=job.quantise).flatten(0, 1)
    with torch.inference_mode():
        wanted = job.keep is not None and draws.size == 1
        batches = moved.split(job.classifier.micro_batch)
        judged = [models.fast.features_and_logits(batch, wanted=wanted) for batch in batches]
        if job.keep is not None and wanted:
            features = torch.cat([seen for seen, _ in judged])
            job.keep.update(zip(draws.indices, features.unbind(), strict=True))
        logits = torch.cat([found for _, found in judged])
        right = _right(models, logits, moved, y.repeat_interleave(draws.size))
        sums = None
        if isinstance(job.source, Observing):
            sums = job.source.observe(logits.view(len(x), draws.size, -1), y).double().cpu().numpy()
    counts: IntArray = right.view(len(x), draws.size).sum(1).cpu().numpy()
    return counts, sums


def _right(models: FrozenForms, logits: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Which images are classified right; close calls go to the model as given, one by one.

    "One by one" is a batch of two equal images, which every model takes.
    """
    check_finite(logits, models.fast.classifier.name)
    largest, answers = logits.topk(2, dim=1)
    close = largest[:, 0] - largest[:, 1] <= AGREEMENT * logits.abs().amax(1)
    right = answers[:, 0] == y
    for row in close.nonzero().flatten().tolist():
        twice = x[row : row + 1].expand(2, *x.shape[1:])
        right[row] = models.reference.logits(twice).argmax(1)[0] == y[row]
    return right


def _check_perturbations(source: PerturbationSource, delta: Tensor, shape: tuple[int, ...]) -> None:
    if delta.shape != shape:
        raise DataError(
            f"source {source.name!r} must return perturbations of shape {shape},"
            f" got {tuple(delta.shape)}."
        )
    if source.budget is not None:
        source.budget.require(delta, source.name)
    elif not bool(torch.isfinite(delta).all()):
        raise DataError(f"source {source.name!r} must return finite numbers, got NaN or Inf.")


def _halved(classifier: Prepared) -> Prepared:
    smaller = classifier.micro_batch // 2
    logger.warning("out of memory: going on with a micro-batch of %d", smaller)
    return replace(classifier, micro_batch=smaller)


@dataclass(frozen=True)
class _Teller:
    """Tells how far the measurement is, from `done` images and `right` answers on.

    Of several ranks one tells, as if all went its way: every image of its own stands for `each`.
    """

    job: _Job
    progress: ProgressCallback | None
    done: int
    right: int
    each: float

    @classmethod
    def of(
        cls, job: _Job, blocks: Blocks, own: IntArray, progress: ProgressCallback | None
    ) -> _Teller:
        left = job.draws - job.draws_done(blocks)
        each = int(left.sum()) / max(1, int(left[own].sum()))
        done = len(left) * job.draws - int(left.sum())
        return cls(job, progress, done, int(blocks.right.sum()), each)

    def __call__(self, blocks: Blocks) -> None:
        if self.progress is None:
            return
        done = int(self.job.draws_done(blocks).sum()) - self.done
        right = int(blocks.right.sum()) - self.right
        self.progress(
            Progress(
                source=self.job.source.name,
                done=self.done + round(done * self.each),
                total=len(self.job.part) * self.job.draws,
                right=self.right + round(right * self.each),
            )
        )
