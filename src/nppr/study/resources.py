"""Data and classifiers of a study: identified by their content, loaded once per process.

A source holds everything a process needs to load something, with hashes of its content. If the content
has changed since the study was planned, or differs on another machine, loading raises an error.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from nppr.data import Data
from nppr.errors import ClassifierError, DataError, NpprError
from nppr.formats import is_path, names_code
from nppr.measuring.measurement import probe
from nppr.models import SPEEDUPS, Classifier, PreparedClassifier, fit_micro_batch, prepare
from nppr.models.formats.python_models import files_beside
from nppr.models.zoo import ZOO, shipped_weights
from nppr.run.resolve import resolve_data, resolve_models
from nppr.settings import NetworkSettings
from nppr.study.study_file import ClassifierEntry, DataEntry, InputCounts
from nppr.system.bounded import open_regular
from nppr.system.specs import RANDOM_WEIGHTS

CHANGED = "changed since the study was planned. Run the same command again."

ABSENT_SHAPE = (3, 32, 32)
"""Assumed shape of inputs that are not here."""


def digest_of(content: object) -> str:
    """Return a hash of plain values; the order of keys does not matter.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """Return a hash of the bytes of a file; an unchanged file is read only once."""
    state = path.stat()
    return _digest_bytes(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_bytes(path: Path, size: int, changed: int) -> str:  # noqa: ARG001
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class DataSource:
    """A data set of a study; `identity` is a hash of the inputs used, None before they are read.

    If the data are not here, the identity is a placeholder, and shape and sizes are expectations.
    """

    entry: DataEntry
    identity: str | None = None
    shape: tuple[int, ...] = ABSENT_SHAPE
    sizes: InputCounts = field(default_factory=InputCounts)
    is_here: bool = True


@dataclass(frozen=True)
class ClassifierSource:
    """A classifier of a study: the settings that load it and a hash of what determines it.

    `files` are hashes of its files by path. `trained` is the hash of the node that trains it, whose
    folder then holds the weights.
    """

    network: NetworkSettings
    identity: str = ""
    files: tuple[tuple[str, str], ...] = ()
    fingerprint: str | None = None
    trained: str | None = None


def missing_classifier(entry: ClassifierEntry) -> str | None:
    """Return what is missing where, if the weights or the file of the model are not here."""
    if entry.training is not None or entry.weights == RANDOM_WEIGHTS:
        return None
    if entry.weights is not None and not os.path.isfile(_full_path(entry.weights)):
        return f"weights of {entry.name!r} ({entry.model}) at {entry.weights}"
    if entry.weights is None and entry.model in ZOO and shipped_weights(entry.model) is None:
        return f"weights of {entry.name!r}: give `weights` or a `training` (nppr ships none)"
    file = _model_file(entry.model)
    if file is not None and not os.path.isfile(_full_path(file)):
        return f"the model of {entry.name!r} at {file}"
    return None


def identify_data(entry: DataEntry) -> DataSource:
    """Read the data again and return them with a hash of the inputs used, if they are here."""
    if is_path(entry.spec):
        path = _full_path(entry.spec)
        if not os.path.exists(path):
            return _expect_data(entry)
        entry = entry.model_copy(update={"spec": str(path)})
    load_source.cache_clear()
    data = load_source(DataSource(entry))
    sizes = InputCounts(fit=len(data.fit), select=len(data.select), evaluate=len(data.evaluate))
    return DataSource(entry, _identity_of(data), data.shape, sizes)


def _expect_data(entry: DataEntry) -> DataSource:
    """Return data that are not here, with the sizes that the study expects."""
    expected = entry.expected.model_dump() if entry.expected else {}
    limits = {"fit": entry.fit_inputs, "select": entry.select_inputs, "evaluate": entry.inputs}
    known = {split: (expected.get(split), limit) for split, limit in limits.items()}
    sizes = {
        split: min((each for each in both if each is not None), default=1)
        for split, both in known.items()
    }
    return DataSource(entry, f"absent {entry.name}", sizes=InputCounts(**sizes), is_here=False)


def identify_classifier(
    entry: ClassifierEntry, data: DataSource, *, run_code: bool
) -> ClassifierSource:
    """Return a classifier with hashes of its weights and of the files of its model.

    A model that Python code makes is loaded only with `run_code`.
    """
    network, file = entry.network, _model_file(entry.model)
    known: list[object] = [network.model_dump(mode="json", exclude={"model", "weights"})]
    if entry.weights not in (None, RANDOM_WEIGHTS):
        network = network.with_(weights=str(_full_path(str(entry.weights))))
    files: dict[str, str] = {}
    function = entry.model.removeprefix(file or "")
    known.append(function)
    if file is not None:
        path = _full_path(file)
        network = network.with_(model=f"{path}{function}")
        files[str(path)] = file_digest(path)
    fingerprint = None
    if run_code or not names_code(entry.model):
        fingerprint = _load_classifier(ClassifierSource(network), data).fingerprint()
        if file is not None and names_code(entry.model):
            files |= {str(each): file_digest(each) for each in files_beside(path)}
    identity = digest_of([known, list(files.values()), fingerprint])
    return ClassifierSource(network, identity, tuple(files.items()), fingerprint)


@lru_cache(maxsize=8)
def load_source(source: DataSource) -> Data:
    """Load the splits of the data that are used; raise `DataError` if they have changed."""
    entry = source.entry
    data = resolve_data(entry.spec, entry, reading=entry, classes=entry.classes)
    if source.identity not in (None, _identity_of(data)):
        raise DataError(f"`data` must not change, {entry.spec} {CHANGED}")
    return data


@lru_cache(maxsize=4)
def prepare_source(
    source: ClassifierSource, data: DataSource, device: str | None, weights: str | None = None
) -> PreparedClassifier:
    """Prepare a classifier so that it rounds the same way in every process."""
    classifier, inputs = _load_classifier(source, data, weights), load_source(data)
    examples = probe(inputs.evaluate)
    size = fit_micro_batch(examples)
    return prepare(
        classifier, examples, classes=inputs.classes, device=device, micro_batch=size,
        speedups=SPEEDUPS,
    )  # fmt: skip


def measure_speed(entry: ClassifierEntry, data: DataSource) -> float | None:
    """Return the images per second of a forward pass, or None if it cannot be timed.

    A network of the zoo has random weights here. Python code is not timed: planning does not run it.
    """
    if names_code(entry.model) or not data.is_here:
        return None
    network = entry.network.with_(weights=RANDOM_WEIGHTS) if entry.model in ZOO else entry.network
    try:
        return prepare_source(ClassifierSource(network), data, None).images_per_second
    except NpprError:
        return None


def _identity_of(data: Data) -> str:
    splits = [each.fingerprint() for each in (data.fit, data.select, data.evaluate)]
    return digest_of([splits, data.classes, list(data.shape)])


def _load_classifier(
    source: ClassifierSource, data: DataSource, weights: str | None = None
) -> Classifier:
    """Load a classifier; raise `ClassifierError` if it is not the one of the plan."""
    network = source.network if weights is None else source.network.with_(weights=weights)
    loaded, _ = resolve_models(network.model, load_source(data), network)
    for path, digest in source.files:
        if file_digest(Path(path)) != digest:
            raise ClassifierError(f"`classifiers` must not change, {path} {CHANGED}")
    if source.fingerprint not in (None, loaded.fingerprint()):
        raise ClassifierError(
            f"`classifiers` must have the same weights each time, those of {network.model} {CHANGED}"
        )
    return loaded


def _full_path(path: str) -> Path:
    """Return the absolute path of a file; an unknown user's home stays as it is written."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def _model_file(model: str) -> str | None:
    """Return the part of a model's name that is a file, if there is one."""
    file = model if model.endswith((".pt2", ".onnx")) else model.rpartition(":")[0]
    return file if file == model or file.endswith(".py") else None
