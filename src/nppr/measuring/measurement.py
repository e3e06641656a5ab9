"""The only loop that measures: `measure(source, classifier, split) -> Tally`.

For every input and draw, it asks the source for a perturbation, checks it against the budget,
applies it, clips to [0, 1], and asks the classifier. Draws are keyed by input, so the counts do not
depend on the micro-batch, on the variant of the classifier that runs, or on interruptions. If the
label's logit and the largest other logit are so close that rounding could matter, the original
model decides, on that image alone.
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

from nppr.core.budget import perturbed
from nppr.core.draw_count import DEFAULT_DRAWS
from nppr.core.losses import margin
from nppr.core.random_draws import DRAWS_PER_BLOCK, DrawBlock
from nppr.core.tally import Audit, BoolArray, FloatArray, IntArray, Progress, SplitKind, Tally
from nppr.data import PROBE_INPUTS, Split
from nppr.errors import DataError, SpecError
from nppr.measuring.blocks import Blocks, Store
from nppr.models import (
    AGREEMENT,
    Classifier,
    FrozenPair,
    PreparedClassifier,
    check_finite,
    is_out_of_memory,
    prepare,
)
from nppr.models.screening import audit_share
from nppr.sources import Clean, Source

logger = logging.getLogger(__name__)

NUMBERS_AT_ONCE = 2**20
"""Numbers in the perturbed images that are made together, unless a micro-batch has more."""

S = TypeVar("S", bound=SplitKind)
ProgressCallback = Callable[[Progress], None]


def probe(split: Split[S]) -> Tensor:
    """Return the first inputs of a split, for checking and timing a classifier."""
    x, _ = split.batch(np.arange(min(PROBE_INPUTS, len(split))))
    return x


def measure(
    source: Source,
    classifier: Classifier | PreparedClassifier,
    split: Split[S],
    *,
    classes: int | None = None,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    clean_correct: BoolArray | None = None,
    progress: ProgressCallback | None = None,
    store: Store | None = None,
    keep: dict[int, Tensor] | None = None,
    skip: BoolArray | None = None,
) -> Tally[S]:
    """Measure a source on all inputs of a split, with `draws` draws each.

    `classes` is needed only if `classifier` is not prepared yet. If `clean_correct` is missing, it
    is measured first. Finished blocks go to `store`; blocks found there are not repeated. A source
    with one draw stores the features of the images it judged in `keep`, by dataset index. Inputs in
    `skip` are not run and count as wrong.
    """
    if draws < 1:
        raise SpecError(f"`draws` must be a whole number >= 1, got {draws}.")
    if not len(split):
        raise DataError(f"the {split.kind.name} split must hold at least one input, got none.")
    if isinstance(classifier, Classifier):
        known = classes or int(split.labels.max()) + 1
        classifier = prepare(classifier, probe(split), classes=known)
    if clean_correct is None:
        nothing = np.zeros(len(split), bool)
        clean = measure(Clean(), classifier, split, clean_correct=nothing)
        clean_correct = clean.correct == 1
    draws = source.fixed_draws or draws
    job = _Job(
        source, classifier, split, probe(split)[0].numel(), draws, seed, keep, progress, store, skip
    )
    share = 0.0
    if classifier.screening is not None and source.may_be_screened:
        share = audit_share(int(clean_correct.sum()), draws)
    with classifier.frozen(audit=share) as models:
        blocks, micro_batch = _run(job, models)
    audit = None
    if blocks.audit.size:
        alone, audited, _, exact = blocks.audit.sum(0).tolist()
        audit = Audit(share, alone, audited, discarded=exact > 0)
    return Tally(
        kind=split.kind,
        indices=split.indices,
        labels=split.labels,
        clean_correct=clean_correct,
        correct=blocks.correct,
        draws=draws,
        calls=int(blocks.calls.sum()),
        micro_batch=micro_batch,
        sums=blocks.sums if blocks.sums.size else None,
        outcomes=blocks.outcomes if blocks.outcomes.size else None,
        audit=audit,
    )


@dataclass(frozen=True)
class _Job:
    """A measurement and its division into parts; `capacity` draws form a block."""

    source: Source
    classifier: PreparedClassifier
    split: Split[SplitKind]
    pixels: int
    draws: int
    seed: int
    keep: dict[int, Tensor] | None
    progress: ProgressCallback | None
    store: Store | None
    skip: BoolArray | None

    @property
    def capacity(self) -> int:
        return min(DRAWS_PER_BLOCK, self.source.fixed_draws or DRAWS_PER_BLOCK)

    @property
    def blocks(self) -> int:
        return -(-self.draws // self.capacity)

    @property
    def inputs_at_once(self) -> int:
        """Inputs whose draws are made together: a micro-batch, or more if images are small.

        The classifier still receives micro-batches; a larger chunk reduces the overhead around it.
        A source that calls the classifier itself gets one micro-batch.
        """
        if self.source.inputs_at_once is not None:
            return self.source.inputs_at_once
        images, draws = self.classifier.micro_batch, min(self.capacity, self.draws)
        if self.source.cost <= 1:
            images = max(images, NUMBERS_AT_ONCE // self.pixels)
        filling = self.classifier.micro_batch // math.gcd(self.classifier.micro_batch, draws)
        return max(1, images // draws // filling * filling or images // draws)

    def progress_at(self, blocks: Blocks) -> Progress:
        done = np.minimum(blocks.finished * self.capacity, self.draws)
        total = len(done) * self.draws
        return Progress(self.source.name, int(done.sum()), total, int(blocks.correct.sum()))

    def draw_block(self, positions: IntArray, block: int) -> DrawBlock:
        return DrawBlock(
            seed=self.seed,
            split=self.split.kind.name,
            indices=tuple(self.split.indices[positions].tolist()),
            block=block,
            size=min(self.capacity, self.draws - block * self.capacity),
            device=self.classifier.device,
            capacity=self.capacity,
        )


def _run(job: _Job, models: FrozenPair) -> tuple[Blocks, int]:
    """Return all blocks of all inputs, and the final micro-batch.

    If the model contradicts a decision of the screening, all counts are discarded and made exactly.
    """
    inputs, store = len(job.split), job.store
    blocks = (store.load(inputs) if store else None) or Blocks.none(inputs)
    exact = replace(models, screen=None)
    if not blocks.is_contradicted:
        job = _complete(job, exact if blocks.must_be_exact else models, blocks)
    if blocks.is_contradicted:
        logger.warning("%s: the model contradicted 16-bit floats; counting again", job.source.name)
        blocks = Blocks.discarded(inputs)
        if store:
            store.save(blocks, now=True)
        job = _complete(job, exact, blocks)
    return blocks, job.classifier.micro_batch


def _complete(job: _Job, models: FrozenPair, blocks: Blocks) -> _Job:
    """Add the unfinished blocks until a contradiction; return the job with its final micro-batch."""
    if job.skip is not None:
        blocks.finished[job.skip] = job.blocks
    inputs = np.arange(len(job.split))
    committing = False
    start = 0
    try:
        while start < len(inputs):
            chunk = inputs[start : start + job.inputs_at_once]
            try:
                for done in _chunk(job, models, chunk, blocks):
                    committing = True
                    _commit(job, blocks, done)
                    committing = False
                    if job.progress is not None:
                        job.progress(job.progress_at(blocks))
                    if job.store:
                        job.store.save(blocks, now=False)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or job.classifier.micro_batch == 1:
                    raise
                smaller = job.classifier.micro_batch // 2
                logger.warning("out of memory: continuing with a micro-batch of %d", smaller)
                job = replace(job, classifier=replace(job.classifier, micro_batch=smaller))
                continue
            if blocks.is_contradicted:
                break
            start += len(chunk)
    finally:
        # Do not save after an interrupt in the middle of a commit; the file from before it stays.
        if job.store and not committing:
            job.store.save(blocks, now=True)
    return job


@dataclass(frozen=True, eq=False)
class _Done:
    """A finished block of some inputs."""

    positions: IntArray
    block: int
    correct: BoolArray
    """Whether each draw is classified correctly, `(B, S)`."""
    calls: int
    sums: FloatArray | None = None
    audit: IntArray | None = None
    """Decisions taken alone, repeated and contradicted per input, `(B, 3)`, if it was screened."""


def _chunk(job: _Job, models: FrozenPair, chunk: IntArray, blocks: Blocks) -> Iterator[_Done]:
    if bool((blocks.finished[chunk] == job.blocks).all()):
        return
    images, labels = job.split.batch(chunk)
    images, labels = images.to(job.classifier.device), labels.to(job.classifier.device)
    for block in range(job.blocks):
        todo = np.flatnonzero(blocks.finished[chunk] <= block)
        if len(todo):
            rows = torch.from_numpy(todo).to(images.device)
            draws = job.draw_block(chunk[todo], block)
            before = models.fast.calls
            correct, sums, audit = _judge(job, models, images[rows], labels[rows], draws)
            yield _Done(chunk[todo], block, correct, models.fast.calls - before, sums, audit)


def _commit(job: _Job, blocks: Blocks, done: _Done) -> None:
    """Add a finished block; divide its calls over its inputs; observed sums are logarithms."""
    blocks.correct[done.positions] += done.correct.sum(1)
    each, more = divmod(done.calls, len(done.positions))
    blocks.calls[done.positions] += each
    blocks.calls[done.positions[:more]] += 1
    if done.sums is not None:
        if not blocks.sums.size:
            blocks.sums = np.full((len(blocks.correct), done.sums.shape[1]), -np.inf)
        blocks.sums[done.positions] = np.logaddexp(blocks.sums[done.positions], done.sums)
    if done.audit is not None:
        if not blocks.audit.size:
            blocks.audit = np.zeros((len(blocks.correct), 4), np.int64)
        blocks.audit[done.positions, :3] += done.audit
    if job.source.keeps_outcomes:
        if not blocks.outcomes.size:
            blocks.outcomes = np.zeros((len(blocks.correct), -(-job.draws // 8)), np.uint8)
        bits = np.packbits(done.correct, axis=1)
        start = done.block * job.capacity // 8
        blocks.outcomes[done.positions, start : start + bits.shape[1]] = bits
    blocks.finished[done.positions] = done.block + 1


def _judge(
    job: _Job, models: FrozenPair, x: Tensor, y: Tensor, draws: DrawBlock
) -> tuple[BoolArray, FloatArray | None, IntArray | None]:
    """Return which draws of each input are correct, `(B, S)`, the source's sums, and the audit."""
    source, budget = job.source, job.source.budget
    delta = source.perturb(models.fast, x, y, draws)
    shape = budget.domain(tuple(x.shape[1:])) if budget else tuple(x.shape[1:])
    if delta.shape != (wanted := (len(x), draws.size, *shape)):
        raise DataError(
            f"source {source.name!r} must return perturbations of shape {wanted},"
            f" got {tuple(delta.shape)}."
        )
    if budget is not None:
        budget.require(delta, source.name)
    elif not bool(torch.isfinite(delta).all()):
        raise DataError(
            f"source {source.name!r} must return finite numbers, got NaN or infinite ones."
        )
    moved = perturbed(x.unsqueeze(1), delta, budget, quantise=job.classifier.quantise).flatten(0, 1)
    with torch.inference_mode():
        every = y.repeat_interleave(draws.size)
        logits, audit = _logits(job, models, moved, every, draws)
        correct = _correct(models, logits, moved, every)
        sums = None
        if source.observes:
            answers, labels = models.fast.to_classes(logits, every)
            labels = labels.view(len(x), draws.size)[:, 0]
            sums = source.observe(answers.view(len(x), draws.size, -1), labels)
    found: BoolArray = correct.view(len(x), draws.size).cpu().numpy()
    counted = None if audit is None else audit.view(len(x), draws.size, 3).sum(1).cpu().numpy()
    return found, None if sums is None else sums.double().cpu().numpy(), counted


def _logits(
    job: _Job, models: FrozenPair, x: Tensor, y: Tensor, draws: DrawBlock
) -> tuple[Tensor, Tensor | None]:
    """Return logits of all images, `(N, classes)`, coarse if they decide, and the audit `(N, 3)`."""
    size = job.classifier.micro_batch
    if models.screen is not None:
        coins = draws.uniform(f"audit/{job.source.name}", ()).flatten()
        return models.screen.logits(x, y, coins, size)
    wanted = job.keep is not None and draws.size == 1
    judged = [models.fast.features_and_logits(batch, wanted=wanted) for batch in x.split(size)]
    if job.keep is not None and wanted:
        features = torch.cat([seen for seen, _ in judged])
        # Clones, because a view would be sent to other processes with its whole base tensor.
        rows = [each.clone() for each in features]
        job.keep.update(zip(draws.indices, rows, strict=True))
    return torch.cat([found for _, found in judged]), None


def _correct(models: FrozenPair, logits: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return which images are classified correctly; the original model decides close calls singly.

    For one image, it receives a batch of two equal images, which every model accepts.
    """
    check_finite(logits, models.fast.classifier.name)
    judged, labels = models.fast.to_classes(logits, y)
    margins = margin(judged if judged.is_floating_point() else judged.double(), labels)
    sizes = logits.float().abs().reshape(len(logits), -1).amax(1)
    close = margins.abs() <= AGREEMENT * sizes
    correct = margins < 0
    for row in close.nonzero().flatten().tolist():
        twice = x[row : row + 1].expand(2, *x.shape[1:])
        again, labels = models.original.to_classes(models.original.logits(twice), y[[row, row]])
        correct[row] = again.argmax(1)[0] == labels[0]
    return correct
