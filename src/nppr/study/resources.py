"""Data and classifiers of a study: found, named by a hash of their content, loaded once a process.

A `how` is what a process needs to load something, with the hashes of its content: what changed since
the study was planned, or is different on another machine, is an error and never a result.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from nppr.classifiers import FORMS, RANDOM, Classifier, Prepared, load_classifier, prepare
from nppr.classifiers.zoo import ZOO, shipped_weights
from nppr.data import Data, load_data
from nppr.data.load import DATA, HUB
from nppr.errors import ClassifierError, DataError, NpprError
from nppr.measure import probe
from nppr.setup import FIT_MICRO_BATCH, FIT_NUMBERS
from nppr.study.hashing import digest_of, file_digest
from nppr.study.spec import ClassifierEntry, DataEntry

__all__ = [
    "LOADED",
    "classifier_identity",
    "data_identity",
    "loaded_data",
    "missing_classifier",
    "missing_data",
    "prepared",
    "speed_of",
]

How = dict[str, Any]

LOADED = ("model", "weights", "mean", "std", "classes", "stem", "features")
"""What of an entry says how to load a classifier."""

CHANGED = "changed since the study was planned. Run the same command again."
MOST_DATA = 8
_DATA: dict[str, Data] = {}
"""Data that were loaded in this process, the last few."""


def missing_data(entry: DataEntry) -> str | None:
    """What to put where, if the data are not here."""
    if entry.spec in DATA or entry.spec.startswith(HUB) or Path(entry.spec).expanduser().exists():
        return None
    return f"data {entry.name!r} at {entry.spec}"


def missing_classifier(entry: ClassifierEntry) -> str | None:
    """What to put where, if the weights or the model's file are not here."""
    if entry.training is not None or entry.weights == RANDOM:
        return None
    if entry.weights is not None and not Path(entry.weights).expanduser().is_file():
        return f"weights of {entry.name!r} ({entry.model}) at {entry.weights}"
    if entry.weights is None and entry.model in ZOO and shipped_weights(entry.model) is None:
        return f"weights of {entry.name!r}: give `weights` or a `training` (nppr ships none)"
    file = _model_file(entry.model)
    if file is not None and not file.is_file():
        return f"the model of {entry.name!r} at {file}"
    return None


def data_identity(entry: DataEntry) -> tuple[str, How]:
    """A hash of the inputs used, and how to load them; they are read anew."""
    how = entry.model_dump(exclude={"name", "expected"})
    if entry.spec not in DATA and not entry.spec.startswith(HUB):
        how["spec"] = str(Path(entry.spec).expanduser().absolute())
    data = _load_data(how)
    identity = _identity_of(data)
    how["identity"] = identity
    _remember(json.dumps(how, sort_keys=True), data)
    return identity, how


def classifier_identity(entry: ClassifierEntry, data: How) -> tuple[How, How]:
    """What determines a classifier that is not trained here, and how to load it."""
    how = entry.model_dump(include=set(LOADED))
    known = {key: value for key, value in how.items() if key != "weights"}
    digests: dict[str, str] = {}
    path = None if entry.weights in (None, RANDOM) else Path(str(entry.weights)).expanduser()
    if path is None and entry.weights is None and entry.model in ZOO:
        path = shipped_weights(entry.model)
    if path is not None:
        known["weights"] = digests[str(path.absolute())] = file_digest(path)
        how["weights"] = str(path.absolute())
    file = _model_file(entry.model)
    if file is not None:
        rest = entry.model[len(str(_model_file_text(entry.model))) :]
        digests[str(file.absolute())] = file_digest(file)
        known["model"] = [file_digest(file), rest]
        how["model"] = f"{file.absolute()}{rest}"
    how["digests"] = digests
    if path is None and entry.model not in ZOO:
        known["fingerprint"] = _new_classifier(how, data).fingerprint()
        how["fingerprint"] = known["fingerprint"]
    how["identity"] = digest_of(known)
    return known, how


def loaded_data(how: How) -> Data:
    """The parts of the data that are used."""
    key = json.dumps(how, sort_keys=True)
    if key not in _DATA:
        data = _load_data(how)
        if how.get("identity") not in (None, _identity_of(data)):
            raise DataError(f"`data` must stay as they were, {how['spec']} {CHANGED}")
        _remember(key, data)
    return _DATA[key]


def prepared(how: How, data: How, device: str | None) -> Prepared:
    """The classifier in the form in which it rounds the same way in every process."""
    return _prepare(json.dumps(how, sort_keys=True), json.dumps(data, sort_keys=True), device)


def _remember(key: str, data: Data) -> None:
    _DATA[key] = data
    while len(_DATA) > MOST_DATA:
        del _DATA[next(iter(_DATA))]


def _identity_of(data: Data) -> str:
    parts = [part.fingerprint() for part in (data.fit, data.select, data.evaluate)]
    return digest_of([parts, data.classes, list(data.shape)])


def _load_data(given: How) -> Data:
    loaded = load_data(given["spec"], split=given["split"], resize=given["resize"])
    if given["classes"] is not None:
        loaded = loaded.with_classes(given["classes"])
    return loaded.limit(
        inputs=given["inputs"],
        fit_inputs=given["fit_inputs"],
        select_inputs=given["select_inputs"],
        seed=given["seed"],
    )


@lru_cache(maxsize=4)
def _load_classifier(how: str, data: str) -> Classifier:
    return _new_classifier(json.loads(how), json.loads(data))


def _new_classifier(given: How, data: How) -> Classifier:
    """Load it, then see that it is the one that was planned with."""
    loaded = load_classifier(**{name: given[name] for name in LOADED}, data=loaded_data(data))
    for path, digest in given.get("digests", {}).items():
        if file_digest(Path(path)) != digest:
            raise ClassifierError(f"`classifiers` must stay as they were, {path} {CHANGED}")
    if given.get("fingerprint") not in (None, loaded.fingerprint()):
        raise ClassifierError(
            f"`classifiers` must have the same weights each time, those of {given['model']} {CHANGED}"
        )
    return loaded


@lru_cache(maxsize=4)
def _prepare(how: str, data: str, device: str | None) -> Prepared:
    inputs = loaded_data(json.loads(data))
    examples = probe(inputs.evaluate)
    pixels = examples[0].numel()
    return prepare(
        _load_classifier(how, data),
        examples,
        classes=inputs.classes,
        device=device,
        micro_batch=max(1, min(FIT_MICRO_BATCH, FIT_NUMBERS // pixels)),
        form=FORMS,
    )


def _model_file_text(model: str) -> str | None:
    """The part of a model's name that is a file, if one is."""
    if model in ZOO:
        return None
    if model.endswith((".pt2", ".onnx")):
        return model
    file, colon, _ = model.rpartition(":")
    return file if colon and file.endswith(".py") else None


def _model_file(model: str) -> Path | None:
    text = _model_file_text(model)
    return None if text is None else Path(text).expanduser()


def speed_of(entry: ClassifierEntry, data: How) -> float | None:
    """Images per second of a forward pass, with random weights where the own ones are not here."""
    how = entry.model_dump(include=set(LOADED))
    if entry.model in ZOO:
        how = {**how, "weights": RANDOM}
    try:
        return prepared(how, data, None).images_per_second
    except NpprError:
        return None
