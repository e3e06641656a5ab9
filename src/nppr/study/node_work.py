"""Doing one node, in whatever process: the same work gives the same files everywhere.

A node is a run: `train` trains, `fit` completes one stage of a search, `measure` assesses one source.
Data, classifiers and clean answers are loaded and computed once per process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.assessment.prepare import prepare_run
from nppr.assessment.run import complete_run
from nppr.assessment.run_settings import RunSettings
from nppr.budget import Budget
from nppr.classifiers import Classifier, Prepared
from nppr.classifiers.training import train
from nppr.data import Split
from nppr.errors import DataError, NpprError, RunFolderError
from nppr.measurement import measure
from nppr.search.learned_noise import load_learned, save_learned
from nppr.search.search import FinishedStage, Search, load_finished
from nppr.search.selection import IN_MEMORY, CleanInputs
from nppr.sources import Clean, parse_sources
from nppr.study.graph import Node
from nppr.study.node_cache import Finished, NodeCache, is_full_disk
from nppr.study.plan import Task
from nppr.study.resources import ClassifierSource, DataSource, load_source, prepare_source
from nppr.tally import SplitKind

logger = logging.getLogger(__name__)

DONE, FAILED, FULL = "done", "failed", "full"
ATTEMPTS = "attempts"
WEIGHTS, TRAINING_LOG = "weights.safetensors", "weights.json"
NO_BUDGET = ("linf", 1.0)
"""For corruptions, which ignore it."""

S = TypeVar("S", bound=SplitKind)


@dataclass(frozen=True)
class Outcome:
    """How a node ended; `note` is what a person should know besides."""

    hash: str
    status: str
    finished: Finished | None = None
    error: str = ""
    note: str = ""


def perform(node: Node, cache_path: str) -> Outcome:
    """Do a node, or find it done by another process, and state how it went."""
    cache = NodeCache(Path(cache_path))
    task = _task(node)
    before = torch.get_num_threads()
    torch.set_num_threads(task.threads)
    try:
        with cache.locked(node):
            return _perform_locked(node, cache)
    except Exception as error:  # one node must not stop the others
        logger.debug("node %s failed", node.label, exc_info=True)
        if is_full_disk(error):
            return Outcome(node.hash, FULL, error=f"no space left on the disk of {cache.path}")
        why = " ".join(str(error).split()) or type(error).__name__
        shown = why if isinstance(error, NpprError) else f"{type(error).__name__}: {why}"
        return Outcome(node.hash, FAILED, error=shown[:500])
    finally:
        torch.set_num_threads(before)


def _perform_locked(node: Node, cache: NodeCache) -> Outcome:
    found = cache.look_up(node)
    if found.finished is not None:
        return Outcome(node.hash, DONE, found.finished)
    note = ""
    if found.damage:
        note = f"{node.label}: cached result not used, {found.damage}; computed again"
        cache.clear(node)
    attempts = _count_attempt(cache.folder(node.hash) / ATTEMPTS)
    cache.log(node, "begin")
    load_source(_task(node).data)  # what is loaded once per process is not part of a node's time
    if node.kind != "train":
        _classifier(node, cache)
    start = time.perf_counter()
    try:
        files = WORK[node.kind](node, cache)
    except RunFolderError as error:
        if attempts == 1 or is_full_disk(error):
            raise
        note = f"{node.label}: what an earlier run left was damaged; begun again"
        cache.clear(node)
        files = WORK[node.kind](node, cache)
    seconds = round(time.perf_counter() - start, 3)
    finished = cache.finish(node, files, seconds=seconds, attempts=attempts)
    cache.log(node, "done")
    return Outcome(node.hash, DONE, finished, note=note)


def _task(node: Node) -> Task:
    assert isinstance(node.task, Task)
    return node.task


def _count_attempt(path: Path) -> int:
    """How often this node was begun, this time included."""
    try:
        before = int(path.read_text())
    except (OSError, ValueError):
        before = 0
    path.write_text(str(before + 1))
    return before + 1


def _classifier(node: Node, cache: NodeCache) -> Prepared:
    task = _task(node)
    return _prepared(task.classifier, task.data, task.device, cache)


def _prepared(
    source: ClassifierSource, data: DataSource, device: str | None, cache: NodeCache
) -> Prepared:
    """A classifier; one that was trained here has the weights of its node."""
    weights = str(cache.folder(source.trained) / WEIGHTS) if source.trained else None
    return prepare_source(source, data, device, weights)


def _feature_model(node: Node, cache: NodeCache) -> Classifier | None:
    task = _task(node)
    if task.features is None:
        return None
    return _prepared(task.features, task.data, task.device, cache).reference


def train_node(node: Node, cache: NodeCache) -> tuple[str, ...]:
    """Train on the fit and select splits; an interrupted training continues from its last epoch."""
    task, folder = _task(node), cache.folder(node.hash)
    assert task.training is not None
    model, settings = task.training
    if not (folder / "weights.checkpoint.safetensors").exists():
        for name in (WEIGHTS, TRAINING_LOG):  # of a run that ended between its last two files
            (folder / name).unlink(missing_ok=True)
    data = load_source(task.data)
    train(model, data, folder / WEIGHTS, settings, device=task.device, resume=True)
    return (WEIGHTS, TRAINING_LOG)


def fit_node(node: Node, cache: NodeCache) -> tuple[str, ...]:
    """Fit one family, choose among what was found and its parents; resumes from its last state."""
    task, folder = _task(node), cache.folder(node.hash)
    assert task.search is not None
    assert task.stage is not None
    assert task.budget is not None
    classifier, data = _classifier(node, cache), load_source(task.data)
    features = task.features or task.classifier
    sees = task.stage.family.dependency.sees_input
    find = _Finder(task.classifier, features if sees else None, task, cache)
    search = Search(
        settings=task.search,
        classifier=classifier,
        data=data,
        budget=Budget.parse(*task.budget),
        seed=task.seed,
        feature_model=_feature_model(node, cache),
        quantise=task.quantise,
        folder=folder / "fit",
        identity=node.hash,
        inputs=(find(data.fit, keep_images=True), find(data.select)),
    )
    parents = [
        _finished_stage(cache, hash_, classifier.device)
        for role, hash_ in sorted(node.needs.items())
        if role.startswith("parent-")
    ]
    finished = search.complete(task.stage, parents)
    save_learned(folder / "distributions", [search.learned([finished])])
    made = [*folder.glob("fit/*.done.safetensors"), *folder.glob("distributions/*.safetensors")]
    return tuple(str(path.relative_to(folder)) for path in made)


def _finished_stage(cache: NodeCache, hash_: str, device: torch.device) -> FinishedStage:
    (made,) = (cache.folder(hash_) / "fit").glob("*.done.safetensors")
    found = load_finished(made, hash_, device)
    assert found is not None
    return found


@dataclass(frozen=True)
class _Finder:
    """Finds the clean-correct inputs of a split, once per process for each classifier."""

    classifier: ClassifierSource
    features: ClassifierSource | None
    task: Task
    cache: NodeCache

    def __call__(self, split: Split[S], *, keep_images: bool = False) -> CleanInputs[S]:
        name, task = split.kind.name, self.task
        if not len(split):
            raise DataError(
                f"`data` must have a {name} split to fit NPPR on, got none. Leave `dependencies` out"
                " of the grid, or give data with such a split."
            )
        ask = (task.data, name, task.device, task.quantise, self.cache)
        own = self.features == self.classifier
        keep = np.flatnonzero(_clean_pass(self.classifier, own, *ask)[0])
        if not len(keep):
            raise DataError(
                f"the {name} split must hold at least one clean-correct input, got none."
                " Check the classifier, its normalisation and the labels."
            )
        features = torch.empty(len(keep), 0)
        if self.features is not None:
            _, seen = _clean_pass(self.features, True, *ask)
            features = seen[torch.from_numpy(keep)]
        kept = replace(split, indices=split.indices[keep], labels=split.labels[keep])
        images = None
        if keep_images:
            first, _ = kept.batch(np.arange(1))
            if first.nbytes * len(kept) <= IN_MEMORY:
                images, _ = kept.batch(np.arange(len(kept)))
        return CleanInputs(kept, features, images, 0)


@lru_cache(maxsize=16)
def _clean_pass(
    source: ClassifierSource,
    wants_features: bool,
    data: DataSource,
    split: str,
    device: str | None,
    quantise: bool,
    cache: NodeCache,
) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Tensor]:
    """Which inputs of a split are clean-correct, and the features `(N, F)` of all where wanted."""
    part: Split[SplitKind] = getattr(load_source(data), split)
    seen: dict[int, Tensor] | None = {} if wants_features else None
    tally = measure(
        Clean(),
        _prepared(source, data, device, cache),
        part,
        clean_correct=np.ones(len(part), bool),
        quantise=quantise,
        keep=seen,
    )
    if seen is None:
        return tally.correct == 1, torch.empty(len(part), 0)
    return tally.correct == 1, torch.stack([seen[index] for index in part.indices.tolist()]).cpu()


def measure_node(node: Node, cache: NodeCache) -> tuple[str, ...]:
    """Assess one source; finished blocks are kept, so that an interrupted measurement continues."""
    task, folder = _task(node), cache.folder(node.hash)
    budget = Budget.parse(*(task.budget or NO_BUDGET))
    sources = [] if task.source is None else parse_sources(task.source, budget)
    learned = []
    if "fit" in node.needs:
        features = _feature_model(node, cache)
        learned = load_learned(cache.folder(node.needs["fit"]), budget, features)
    settings = RunSettings(
        draws=task.draws, seed=task.seed, confidence=task.confidence, quantise=task.quantise
    )
    setup = prepare_run(
        _classifier(node, cache),
        load_source(task.data),
        budget,
        settings,
        sources=sources,
        distributions=learned,
        out=folder / "run",
        resume=True,
    )
    report = complete_run(setup, sources, learned, examine=False)
    for row in report.results:
        if row.error:
            raise NpprError(row.error)
    return ("run/report.json", "run/per_input.csv")


WORK: dict[str, Callable[[Node, NodeCache], tuple[str, ...]]] = {
    "train": train_node,
    "fit": fit_node,
    "measure": measure_node,
}
