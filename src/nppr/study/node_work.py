"""Compute one node. The same work gives the same files in every process.

A node is a run: `train` trains, `fit` completes one stage of a search, `measure` assesses one source.
Data, classifiers and clean-correct inputs are loaded and computed once per process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from nppr.core.budget import Budget
from nppr.errors import DataError, NpprError, RunFolderError, VanishedError, WriteError
from nppr.formats import REPORT
from nppr.models import Classifier, PreparedClassifier
from nppr.report.per_input import PER_INPUT
from nppr.run.assessment_run import AssessmentRun
from nppr.run.complete_run import complete_run
from nppr.run.resolve import Resolved
from nppr.search.learned_noise import LearnedNoise, load_learned, save_learned
from nppr.search.search import FinishedStage, NoiseSearch, load_finished
from nppr.search.selection import CleanInputs, find_clean_inputs
from nppr.settings import Run
from nppr.sources import Source
from nppr.sources.per_input_noise import PerInputNoise
from nppr.study.graph import FitWork, MeasureWork, Node, NodeWork, NoiseWork, TrainWork
from nppr.study.node_cache import FinishedNode, FullCacheError, NodeCache, is_full_disk
from nppr.study.resources import ClassifierSource, DataSource, load_source, prepare_source
from nppr.train import train_network

WEIGHTS, TRAINING_LOG = "weights.safetensors", "weights.json"

ANY_BUDGET = Budget.linf(1.0)
"""Budget of a run of sources that do not use it, such as corruptions."""


@dataclass(frozen=True)
class NodeResult:
    """A finished node, and a note if a person should know how it was finished."""

    finished: FinishedNode
    note: str = ""


def run_node(node: Node, cache: NodeCache) -> NodeResult:
    """Compute a node and write its files, unless another process has done so."""
    try:
        with cache.locked(node):
            return _run_locked(node, cache)
    except Exception as error:
        if is_full_disk(error):
            raise FullCacheError(
                f"`cache` must have space, the disk of {cache.path} is full. Finished nodes are"
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
    load_source(node.work.data)  # the time of a node does not include what a process loads once
    if not isinstance(node.work, TrainWork):
        _prepare(node.work.classifier, node.work, cache)
    start = time.perf_counter()
    try:
        files = _compute(node, cache)
    except RunFolderError as error:
        if not resumes or isinstance(error, WriteError):
            raise
        note = f"{node.label}: the state left by an earlier run was damaged; started again"
        cache.clear(node)
        files = _compute(node, cache)
    finished = cache.finish(node, files, round(time.perf_counter() - start, 3))
    cache.log(node, "done")
    return NodeResult(finished, note)


def _compute(node: Node, cache: NodeCache) -> list[Path]:
    """Compute a node and return the files of its result."""
    folder = cache.folder(node.hash)
    match node.work:
        case TrainWork() as work:
            return _train(work, folder)
        case FitWork() as work:
            return _fit(work, node.hash, folder, cache)
        case MeasureWork() as work:
            return _measure(work, folder, cache)
    raise AssertionError(node.kind)


def _prepare(source: ClassifierSource, work: NodeWork, cache: NodeCache) -> PreparedClassifier:
    """Prepare a classifier; if a node has trained it, with the weights in the folder of that node."""
    weights = str(cache.folder(source.trained) / WEIGHTS) if source.trained else None
    return prepare_source(source, work.data, work.device, weights)


def _feature_model(work: NoiseWork, cache: NodeCache) -> Classifier | None:
    return None if work.features is None else _prepare(work.features, work, cache).original


def _train(work: TrainWork, folder: Path) -> list[Path]:
    """Train on the fit and select splits; an interrupted training continues from its last epoch."""
    made = [folder / WEIGHTS, folder / TRAINING_LOG]
    model, data = work.classifier.network.model, load_source(work.data)
    train_network(model, data, made[0], work.settings, device=work.device, resume=True)
    return made


def _fit(work: FitWork, identity: str, folder: Path, cache: NodeCache) -> list[Path]:
    """Fit one family and choose among what was found and its parents; resume from the last state."""
    assert work.budget is not None
    ready = _prepare(work.classifier, work, cache)
    classifier = replace(ready, quantise=work.quantise)
    ask = work.classifier, work.data, work.device, work.quantise, cache
    features = None
    if work.stage.family.dependency.sees_input:
        features = work.features or work.classifier
    search = NoiseSearch(
        settings=work.search,
        classifier=classifier,
        data=load_source(work.data),
        budget=work.budget,
        seed=work.seed,
        feature_model=_feature_model(work, cache),
        folder=folder / "fit",
        identity=identity,
        inputs=(_clean_inputs("fit", features, *ask), _clean_inputs("select", features, *ask)),
    )
    parents = [_finished_stage(cache, hash_, classifier.device) for hash_ in work.parents]
    finished = search.complete(work.stage, parents)
    learned = save_learned(folder / "distributions", [search.learned([finished])])
    return [*folder.glob("fit/*.done.safetensors"), *learned]


def _finished_stage(cache: NodeCache, hash_: str, device: torch.device) -> FinishedStage:
    made = next((cache.folder(hash_) / "fit").glob("*.done.safetensors"), None)
    found = None if made is None else load_finished(made, hash_, device)
    if found is None:
        raise VanishedError(
            f"`cache` must stay where it is until the study has ended, a fit in {str(cache.path)!r} has"
            " vanished. Run it again."
        )
    return found


@lru_cache(maxsize=16)
def _clean_inputs(
    name: str,
    features: ClassifierSource | None,
    classifier: ClassifierSource,
    data: DataSource,
    device: str,
    quantise: bool,
    cache: NodeCache,
) -> CleanInputs[Any]:
    """Return the clean-correct inputs of a split, with the features of a model if one is named."""
    work = NodeWork(data, classifier, device)
    split = getattr(load_source(data), name)
    if not len(split):
        raise DataError(
            f"`data` must have a {name} split to fit NPPR on, got none. Leave `dependencies` out of"
            " the grid, or give data with such a split."
        )
    other = None if features in (None, classifier) else features
    return find_clean_inputs(
        replace(_prepare(classifier, work, cache), quantise=quantise),
        split,
        features=features is not None,
        feature_model=_prepare(other, work, cache).original if other else None,
        keep_images=name == "fit",
    )


def open_measurement(
    work: MeasureWork, cache: NodeCache, run: Run | None = None
) -> tuple[AssessmentRun, list[Source], list[LearnedNoise]]:
    """Open the run of a measurement; also its sources and the learned noise that it measures."""
    budget = work.budget or ANY_BUDGET
    classifier = _prepare(work.classifier, work, cache)
    sources: list[Source] = [] if work.source is None else [work.source]
    learned: list[LearnedNoise] = []
    if work.fit is not None:
        learned = load_learned(cache.folder(work.fit), budget, _feature_model(work, cache))
    if work.per_input_calls:
        sources = [PerInputNoise(each.source, work.per_input_calls) for each in learned]
        learned = []
    resolved = Resolved(load_source(work.data), classifier.original, prepared=classifier)
    setup = AssessmentRun.open(
        resolved,
        budget,
        work.settings,
        sources=sources,
        distributions=learned,
        run=run,
    )
    return setup, sources, learned


def _measure(work: MeasureWork, folder: Path, cache: NodeCache) -> list[Path]:
    """Assess one source; an interrupted measurement continues after its last finished block."""
    kept = Run(out=folder / "run", resume=True)
    setup, sources, learned = open_measurement(work, cache, kept)
    with setup:
        report = complete_run(setup, sources, learned, examine=False)
    for row in report.numbers:
        if row.error:
            raise NpprError(row.error)
    return [folder / "run" / name for name in (REPORT, PER_INPUT)]
