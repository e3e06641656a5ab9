"""Doing one node, in whatever process: the same work gives the same files everywhere.

A node is a run: `train` trains, `fit` completes one stage of a search, `measure` assesses one source.
Data, classifiers and clean answers are loaded and computed once per process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from nppr.core.tally import BoolArray, SplitKind
from nppr.data import Split
from nppr.errors import DataError, NpprError, RunFolderError, VanishedError, WriteError
from nppr.measuring.measurement import measure
from nppr.models import Classifier, PreparedClassifier
from nppr.report.per_input import PER_INPUT
from nppr.report.run_files import REPORT
from nppr.run.resolve import Resolved
from nppr.run.run import complete_run
from nppr.run.session import AssessmentRun
from nppr.search.learned_noise import load_learned, save_learned
from nppr.search.search import FinishedStage, NoiseSearch, load_finished
from nppr.search.selection import IN_MEMORY, CleanInputs
from nppr.settings import Run
from nppr.sources import Clean, Source, parse_sources
from nppr.sources.per_input_noise import PerInput
from nppr.study.graph import FitTask, MeasureTask, Node, TrainTask
from nppr.study.node_cache import Finished, FullCacheError, NodeCache, is_full_disk
from nppr.study.resources import ClassifierSource, DataSource, load_source, prepare_source
from nppr.train import train

WEIGHTS, TRAINING_LOG = "weights.safetensors", "weights.json"

S = TypeVar("S", bound=SplitKind)


@dataclass(frozen=True)
class NodeResult:
    """A finished node, and a note if a person should know how it was finished."""

    finished: Finished
    note: str = ""


def run_node(node: Node, cache: NodeCache) -> NodeResult:
    """Compute a node and write its files, unless another process has done so."""
    try:
        with cache.locked(node):
            return _run_locked(node, cache)
    except Exception as error:
        if is_full_disk(error):
            raise FullCacheError(
                f"`cache` must have space, the disk of {cache.path} is full. What is finished is"
                " kept: make space and run the same command again."
            ) from error
        raise


def _run_locked(node: Node, cache: NodeCache) -> NodeResult:
    found = cache.look_up(node)
    if found.finished is not None:
        return NodeResult(found.finished)
    note = ""
    if found.damage:
        note = f"{node.label}: cached result not used, {found.damage}; computed again"
        cache.clear(node)
    resumes = cache.holds_files(node)
    cache.log(node, "begin")
    load_source(node.task.data)  # what is loaded once per process is not part of a node's time
    if node.kind != "train":
        _prepared(node.task.classifier, node.task.data, node.task.device, cache)
    start = time.perf_counter()
    try:
        files = _work(node, cache)
    except RunFolderError as error:
        if not resumes or isinstance(error, WriteError):
            raise
        note = f"{node.label}: the state left by an earlier run was damaged; started again"
        cache.clear(node)
        files = _work(node, cache)
    seconds = round(time.perf_counter() - start, 3)
    finished = cache.finish(node, files, seconds)
    cache.log(node, "done")
    return NodeResult(finished, note)


def _work(node: Node, cache: NodeCache) -> list[str]:
    """Do the work of a node; the files that make its result, within its folder."""
    folder = cache.folder(node.hash)
    match node.task:
        case TrainTask() as task:
            made = _train(task, folder)
        case FitTask() as task:
            made = _fit(node, task, folder, cache)
        case MeasureTask() as task:
            made = _measure(node, task, folder, cache)
    return [str(path.relative_to(folder)) for path in made]


def _prepared(
    source: ClassifierSource, data: DataSource, device: str, cache: NodeCache
) -> PreparedClassifier:
    """A classifier; one that was trained here has the weights of its node."""
    weights = str(cache.folder(source.trained) / WEIGHTS) if source.trained else None
    return prepare_source(source, data, device, weights)


def _feature_model(task: FitTask | MeasureTask, cache: NodeCache) -> Classifier | None:
    if task.features is None:
        return None
    return _prepared(task.features, task.data, task.device, cache).original


def _train(task: TrainTask, folder: Path) -> list[Path]:
    """Train on the fit and select splits; an interrupted training continues from its last epoch."""
    made = [folder / WEIGHTS, folder / TRAINING_LOG]
    data = load_source(task.data)
    train(task.model, data, made[0], task.settings, device=task.device, resume=True)
    return made


def _fit(node: Node, task: FitTask, folder: Path, cache: NodeCache) -> list[Path]:
    """Fit one family, choose among what was found and its parents; resumes from its last state."""
    data = load_source(task.data)
    ready = _prepared(task.classifier, task.data, task.device, cache)
    classifier = replace(ready, quantise=task.quantise)
    search = NoiseSearch(
        settings=task.search,
        classifier=classifier,
        data=data,
        budget=task.budget,
        seed=task.seed,
        feature_model=_feature_model(task, cache),
        folder=folder / "fit",
        identity=node.hash,
        inputs=(
            _clean_inputs(data.fit, task, cache, keep_images=True),
            _clean_inputs(data.select, task, cache),
        ),
    )
    parents = [
        _finished_stage(cache, hash_, classifier.device)
        for role, hash_ in sorted(node.needs.items())
        if role.startswith("parent-")
    ]
    finished = search.complete(task.stage, parents)
    learned = save_learned(folder / "distributions", [search.learned([finished])])
    return [*folder.glob("fit/*.done.safetensors"), *learned]


def _finished_stage(cache: NodeCache, hash_: str, device: torch.device) -> FinishedStage:
    made = next((cache.folder(hash_) / "fit").glob("*.done.safetensors"), None)
    if made is None:
        raise VanishedError(
            f"`cache` must stay where it is until the study has ended, a fit in {str(cache.path)!r} has"
            " vanished. Run it again."
        )
    found = load_finished(made, hash_, device)
    assert found is not None
    return found


def _clean_inputs(
    split: Split[S], task: FitTask, cache: NodeCache, *, keep_images: bool = False
) -> CleanInputs[S]:
    """The clean-correct inputs of a split, with the features that the noise sees."""
    name = split.kind.name
    if not len(split):
        raise DataError(
            f"`data` must have a {name} split to fit NPPR on, got none. Leave `dependencies` out of"
            " the grid, or give data with such a split."
        )
    seen = (task.features or task.classifier) if task.stage.family.dependency.sees_input else None
    ask = (task.data, name, task.device, task.quantise, cache)
    keep = np.flatnonzero(_clean_pass(task.classifier, seen == task.classifier, *ask)[0])
    if not len(keep):
        raise DataError(
            f"the {name} split must hold at least one clean-correct input, got none."
            " Check the classifier, its normalisation and the labels."
        )
    features = torch.empty(len(keep), 0)
    if seen is not None:
        features = _clean_pass(seen, True, *ask)[1][torch.from_numpy(keep)]
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
    device: str,
    quantise: bool,
    cache: NodeCache,
) -> tuple[BoolArray, Tensor]:
    """Which inputs of a split are clean-correct, and the features `(N, F)` of all where wanted."""
    part: Split[SplitKind] = getattr(load_source(data), split)
    seen: dict[int, Tensor] | None = {} if wants_features else None
    tally = measure(
        Clean(),
        replace(_prepared(source, data, device, cache), quantise=quantise),
        part,
        clean_correct=np.ones(len(part), bool),
        keep=seen,
    )
    features = torch.empty(len(part), 0)
    if seen is not None:
        features = torch.stack([seen[index] for index in part.indices.tolist()]).cpu()
    return tally.correct == 1, features


def _measure(node: Node, task: MeasureTask, folder: Path, cache: NodeCache) -> list[Path]:
    """Assess one source; finished blocks are kept, so that an interrupted measurement continues."""
    sources: list[Source] = [] if task.source is None else parse_sources(task.source, task.budget)
    learned = []
    if "fit" in node.needs:
        features = _feature_model(task, cache)
        learned = load_learned(cache.folder(node.needs["fit"]), task.budget, features)
    if task.per_input_calls:
        sources = [PerInput(each.source, task.per_input_calls) for each in learned]
        learned = []
    ready = _prepared(task.classifier, task.data, task.device, cache)
    setup = AssessmentRun.open(
        Resolved(load_source(task.data), ready.original, prepared=ready),
        task.budget,
        task.settings,
        sources=sources,
        distributions=learned,
        run=Run(out=folder / "run", resume=True),
    )
    with setup:
        report = complete_run(setup, sources, learned, examine=False)
    for row in report.results:
        if row.error:
            raise NpprError(row.error)
    return [folder / "run" / name for name in (REPORT, PER_INPUT)]
