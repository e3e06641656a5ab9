"""Data and classifiers of a study: found, named by a hash of their content, loaded once per process.

A source holds what a process needs to load something, with hashes of its content: what changed since
the study was planned, or differs on another machine, is an error and never a result.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
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
from nppr.study.study_file import ClassifierEntry, DataEntry
from nppr.system.bounded import open_regular
from nppr.system.specs import RANDOM_WEIGHTS

CHANGED = "changed since the study was planned. Run the same command again."


def digest_of(content: object) -> str:
    """A hash of plain values; the order of keys does not matter.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """A hash of a file's bytes; a file that did not change is read once."""
    state = path.stat()
    return _digest_bytes(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_bytes(path: Path, size: int, changed: int) -> str:  # noqa: ARG001
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class DataSource:
    """A data set of a study; `identity` is a hash of the inputs used."""

    entry: DataEntry
    identity: str | None = None


@dataclass(frozen=True)
class ClassifierSource:
    """A classifier of a study: how to load it, and hashes of its files.

    `trained` is the hash of the node that trains it, whose folder then holds the weights.
    """

    options: NetworkSettings
    digests: tuple[tuple[str, str], ...] = ()
    fingerprint: str | None = None
    trained: str | None = None


def _place(path: str) -> Path:
    """The whole path of a file; the home of an unknown user is left as it is written."""
    return Path(os.path.abspath(os.path.expanduser(path)))


def missing_data(entry: DataEntry) -> str | None:
    """What to put where, if the data are not here."""
    if not is_path(entry.spec) or os.path.exists(_place(entry.spec)):
        return None
    return f"data {entry.name!r} at {entry.spec}"


def missing_classifier(entry: ClassifierEntry) -> str | None:
    """What to put where, if the weights or the model's file are not here."""
    if entry.training is not None or entry.weights == RANDOM_WEIGHTS:
        return None
    if entry.weights is not None and not os.path.isfile(_place(entry.weights)):
        return f"weights of {entry.name!r} ({entry.model}) at {entry.weights}"
    if entry.weights is None and entry.model in ZOO and shipped_weights(entry.model) is None:
        return f"weights of {entry.name!r}: give `weights` or a `training` (nppr ships none)"
    file = _model_file(entry.model)
    if file is not None and not os.path.isfile(_place(file)):
        return f"the model of {entry.name!r} at {file}"
    return None


def identify_data(entry: DataEntry) -> DataSource:
    """The data with a hash of the inputs used; they are read anew."""
    if is_path(entry.spec):
        spec = str(_place(entry.spec))
        entry = entry.model_copy(update={"spec": spec})
    load_source.cache_clear()
    return DataSource(entry, _identity_of(load_source(DataSource(entry))))


def identify_classifier(
    entry: ClassifierEntry, data: DataSource, *, run_code: bool
) -> tuple[dict[str, object], ClassifierSource]:
    """What determines a classifier that is not trained here, and how to load it.

    A model that is made by Python code is loaded only with `run_code`.
    """
    options = entry.load_options()
    known: dict[str, object] = options.model_dump(mode="json", exclude={"weights"})
    digests: dict[str, str] = {}
    path = None if entry.weights in (None, RANDOM_WEIGHTS) else _place(str(entry.weights))
    if path is None and entry.weights is None and entry.model in ZOO:
        path = shipped_weights(entry.model)
    if path is not None:
        known["weights"] = digests[str(path)] = file_digest(path)
        options = options.model_copy(update={"weights": str(path)})
    file = _model_file(entry.model)
    if file is not None:
        place = _place(file)
        digests[str(place)] = file_digest(place)
        known["model"] = [file_digest(place), entry.model[len(file) :]]
        options = options.model_copy(update={"model": f"{place}{entry.model[len(file) :]}"})
    source = ClassifierSource(options, tuple(digests.items()))
    by_code = names_code(entry.model)
    if entry.model in ZOO or not (run_code if by_code else path is None):
        return known, source
    found = _load(source, data, None).fingerprint()
    fingerprint = None
    if path is None:
        fingerprint = known["fingerprint"] = found
    if by_code and file is not None and (beside := files_beside(_place(file))):
        digests |= {str(each): file_digest(each) for each in beside}
        known["beside"] = [file_digest(each) for each in beside]
    return known, ClassifierSource(options, tuple(digests.items()), fingerprint)


@lru_cache(maxsize=8)
def load_source(source: DataSource) -> Data:
    """The splits of the data that are used."""
    entry = source.entry
    data = resolve_data(entry.spec, entry, reading=entry, classes=entry.classes)
    if source.identity not in (None, _identity_of(data)):
        raise DataError(f"`data` must not change, {entry.spec} {CHANGED}")
    return data


@lru_cache(maxsize=4)
def prepare_source(
    source: ClassifierSource, data: DataSource, device: str | None, weights: str | None = None
) -> PreparedClassifier:
    """The classifier in the form in which it rounds the same way in every process."""
    inputs = load_source(data)
    examples = probe(inputs.evaluate)
    return prepare(
        _load(source, data, weights),
        examples,
        classes=inputs.classes,
        device=device,
        micro_batch=fit_micro_batch(examples),
        speedups=SPEEDUPS,
    )


def speed_of(entry: ClassifierEntry, data: DataSource) -> float | None:
    """Images per second of a forward pass, with random weights where the own ones are not here.

    A model that is made by running code is not timed: planning runs none.
    """
    if names_code(entry.model):
        return None
    options = entry.load_options()
    if entry.model in ZOO:
        options = options.model_copy(update={"weights": RANDOM_WEIGHTS})
    try:
        return prepare_source(ClassifierSource(options), data, None).images_per_second
    except NpprError:
        return None


def _identity_of(data: Data) -> str:
    splits = [each.fingerprint() for each in (data.fit, data.select, data.evaluate)]
    return digest_of([splits, data.classes, list(data.shape)])


def _load(source: ClassifierSource, data: DataSource, weights: str | None) -> Classifier:
    """Load it, then check that it is the one that was planned with."""
    options = source.options
    if weights is not None:
        options = options.model_copy(update={"weights": weights})
    loaded, _ = resolve_models(options.model, load_source(data), options)
    for path, digest in source.digests:
        if file_digest(Path(path)) != digest:
            raise ClassifierError(f"`classifiers` must not change, {path} {CHANGED}")
    if source.fingerprint not in (None, loaded.fingerprint()):
        raise ClassifierError(
            f"`classifiers` must have the same weights each time, those of {options.model} {CHANGED}"
        )
    return loaded


def _model_file(model: str) -> str | None:
    """The part of a model's name that is a file, if one is."""
    if model in ZOO:
        return None
    if model.endswith((".pt2", ".onnx")):
        return model
    file, colon, _ = model.rpartition(":")
    return file if colon and file.endswith(".py") else None
