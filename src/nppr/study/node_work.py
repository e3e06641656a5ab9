"""Compute one node and keep its files in a cache. The same work gives the same files everywhere.

A node is a run: `train` trains, `fit` completes one stage of a search, `measure` assesses one source.
Data, classifiers and clean-correct inputs are loaded and computed once per process. CACHE/<hash>/ is
the folder of the run:

node.json     hash of the node, its seconds, and a hash of each of its files; it is written last
other files   files of the run: report.json, distributions/, weights; while the node is computed, also
              the state from which it resumes
"""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from os import getpid
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

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
from nppr.study.graph import FitNode, MeasureNode, Node, NoiseNode, TrainNode
from nppr.study.resources import (
    ClassifierSource,
    digest_of,
    file_digest,
    load_source,
    prepare_source,
)
from nppr.system.records import shorten_error, write_whole
from nppr.train import train_network

RECORD, LOG, LOCK = "node.json", "log.jsonl", "lock"
WEIGHTS, TRAINING_LOG = "weights.safetensors", "weights.json"

ANY_BUDGET = Budget.linf(1.0)
"""Budget of a run of sources that do not use it, such as corruptions."""


class FullCacheError(RunFolderError):
    """The disk of the cache is full: no node can be finished."""


class FinishedNode(BaseModel):
    """The content of `node.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    label: str
    seconds: FiniteFloat
    files: dict[str, str]
    checksum: str = ""

    def seal(self) -> FinishedNode:
        """Return the record with its own checksum."""
        checksum = digest_of(self.model_dump(exclude={"checksum"}))
        return self.model_copy(update={"checksum": checksum})


@dataclass(frozen=True)
class FoundNode:
    """The result of looking up a node; `damage` states why files that are there cannot be used."""

    finished: FinishedNode | None = None
    damage: str | None = None


@dataclass(frozen=True)
class NodeCache:
    """A folder of finished nodes, which studies can share."""

    path: Path

    def folder(self, hash_: str) -> Path:
        """Return the folder of a node."""
        return self.path / hash_

    def look_up(self, node: Node) -> FoundNode:
        """Return the record of a node if all its files are whole and belong to this node."""
        folder = self.folder(node.hash)
        try:
            record = FinishedNode.model_validate_json((folder / RECORD).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return FoundNode()
        except (OSError, ValidationError) as error:
            return FoundNode(damage=f"{RECORD} cannot be read ({shorten_error(error)[:80]})")
        if record != record.seal() or record.key != node.hash:
            return FoundNode(damage=f"{RECORD} does not match its hash")
        for name, known in record.files.items():
            if not (folder / name).is_file() or file_digest(folder / name) != known:
                return FoundNode(damage=f"{name} does not match its hash")
        return FoundNode(record)

    def finish(self, node: Node, files: Iterable[Path], seconds: float) -> FinishedNode:
        """Record the files of a finished node, then remove all others from its folder.

        A node that is killed between both steps is finished.
        """
        folder = self.folder(node.hash)
        digests = {str(path.relative_to(folder)): file_digest(path) for path in files}
        record = FinishedNode(
            key=node.hash, label=node.label, seconds=seconds, files=digests
        ).seal()
        write_whole(folder / RECORD, record.model_dump_json(indent=2) + "\n")
        kept = {folder / name for name in (*digests, RECORD)}
        _remove_all_but(kept | {parent for path in kept for parent in path.parents}, folder)
        return record

    def holds_files(self, node: Node) -> bool:
        """Return whether an earlier attempt at a node left files."""
        return any(path.name != LOCK for path in self.folder(node.hash).iterdir())

    def clear(self, node: Node) -> None:
        """Remove the files of a node."""
        _remove_all_but(set(), self.folder(node.hash))

    def log(self, node: Node, event: str) -> None:
        """Add a line to the log of the cache: a node begins or is done."""
        self.path.mkdir(parents=True, exist_ok=True)
        entry: dict[str, object] = {"event": event, "hash": node.hash, "label": node.label}
        entry |= {"process": getpid(), "time": round(time.time(), 3)}
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, sort_keys=True) + "\n")

    @contextmanager
    def locked(self, node: Node) -> Iterator[None]:
        """Keep other processes from computing the node; the lock of a killed process is released."""
        folder = self.folder(node.hash)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, is_singleton=True):
            yield


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
    load_source(node.data)  # the time of a node does not include what a process loads once
    if not isinstance(node, TrainNode):
        _prepare(node.classifier, node, cache)
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
    """Compute a node and return the files of its result; what was interrupted continues."""
    folder = cache.folder(node.hash)
    match node:
        case TrainNode():
            made, model = folder / WEIGHTS, node.classifier.network.model
            data = load_source(node.data)
            train_network(model, data, made, node.settings, device=node.device, resume=True)
            return [made, folder / TRAINING_LOG]
        case FitNode():
            return _fit(node, cache)
        case MeasureNode():
            kept = Run(out=folder / "run", resume=True)
            setup, sources, learned = open_measurement(node, cache, kept)
            with setup:
                report = complete_run(setup, sources, learned, examine=False)
            for row in report.numbers:
                if row.error:
                    raise NpprError(row.error)
            return [folder / "run" / name for name in (REPORT, PER_INPUT)]
    raise AssertionError(node.kind)


def _prepare(source: ClassifierSource, node: Node, cache: NodeCache) -> PreparedClassifier:
    """Prepare a classifier; if a node has trained it, with the weights in the folder of that node."""
    weights = str(cache.folder(source.trained) / WEIGHTS) if source.trained else None
    return prepare_source(source, node.data, node.device, weights)


def _feature_model(node: NoiseNode, cache: NodeCache) -> Classifier | None:
    return None if node.features is None else _prepare(node.features, node, cache).original


def _fit(node: FitNode, cache: NodeCache) -> list[Path]:
    """Fit one family and choose among what was found and its parents; resume from the last state."""
    assert node.budget is not None
    folder = cache.folder(node.hash)
    classifier = replace(_prepare(node.classifier, node, cache), quantise=node.quantise)
    sees_input = node.stage.family.dependency.sees_input
    features = (node.features or node.classifier) if sees_input else None
    bare = Node(data=node.data, classifier=node.classifier, device=node.device)  # equal in all fits
    ask = bare, features, node.quantise, cache
    search = NoiseSearch(
        settings=node.search,
        classifier=classifier,
        data=load_source(node.data),
        budget=node.budget,
        seed=node.seed,
        feature_model=_feature_model(node, cache),
        folder=folder / "fit",
        identity=node.hash,
        inputs=(_clean_inputs("fit", *ask), _clean_inputs("select", *ask)),
    )
    parents = [_finished_stage(cache, hash_, classifier.device) for hash_ in node.parents]
    finished = search.complete(node.stage, parents)
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
    name: str, node: Node, features: ClassifierSource | None, quantise: bool, cache: NodeCache
) -> CleanInputs[Any]:
    """Return the clean-correct inputs of a split, with the features of a model if one is named."""
    split = getattr(load_source(node.data), name)
    if not len(split):
        raise DataError(
            f"`data` must have a {name} split to fit NPPR on, got none. Leave `dependencies` out of"
            " the grid, or give data with such a split."
        )
    other = None if features == node.classifier else features
    return find_clean_inputs(
        replace(_prepare(node.classifier, node, cache), quantise=quantise),
        split,
        features=features is not None,
        feature_model=_prepare(other, node, cache).original if other else None,
        keep_images=name == "fit",
    )


def open_measurement(
    node: MeasureNode, cache: NodeCache, run: Run | None = None
) -> tuple[AssessmentRun, list[Source], list[LearnedNoise]]:
    """Open the run of a measurement; also its sources and the learned noise that it measures."""
    budget = node.budget or ANY_BUDGET
    classifier = _prepare(node.classifier, node, cache)
    sources: list[Source] = [] if node.source is None else [node.source]
    learned: list[LearnedNoise] = []
    if node.fit is not None:
        learned = load_learned(cache.folder(node.fit), budget, _feature_model(node, cache))
    if node.per_input_calls:
        sources = [PerInputNoise(each.source, node.per_input_calls) for each in learned]
        learned = []
    resolved = Resolved(load_source(node.data), classifier.original, prepared=classifier)
    setup = AssessmentRun.open(
        resolved, budget, node.settings, sources=sources, distributions=learned, run=run
    )
    return setup, sources, learned


def is_full_disk(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, is a disk without space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def _remove_all_but(kept: set[Path], folder: Path) -> None:
    """Remove everything in a folder but these paths and the lock; a link is removed, not followed."""
    for path in folder.iterdir():
        if path.name == LOCK:
            continue
        if path.is_symlink() or not path.is_dir():
            if path not in kept:
                path.unlink(missing_ok=True)
        elif path in kept:
            _remove_all_but(kept, path)
        else:
            shutil.rmtree(path)
