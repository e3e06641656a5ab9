"""Data and classifiers of a study: found, named by a hash of their content, loaded once a process.

A `how` is what a process needs to load something; it holds the hash of the content, so that a file
that changed is not taken for the one that was loaded before.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from nppr.classifiers import Classifier, Prepared, load_classifier, prepare
from nppr.classifiers.load import RANDOM
from nppr.classifiers.prepare import FORMS
from nppr.classifiers.zoo import ZOO, shipped_weights
from nppr.data import Data, load_data
from nppr.data.load import DATA, HUB
from nppr.errors import NpprError
from nppr.measure import probe
from nppr.setup import FIT_MICRO_BATCH, FIT_NUMBERS
from nppr.study.hashing import digest_of, file_digest
from nppr.study.spec import ClassifierEntry, DataEntry

__all__ = [
    "classifier_identity",
    "data_identity",
    "loaded_classifier",
    "loaded_data",
    "missing_classifier",
    "missing_data",
    "prepared",
    "speed_of",
]

How = dict[str, Any]


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
    """A hash of the inputs used, and how to load them."""
    how = entry.model_dump(exclude={"name", "expected"})
    if entry.spec not in DATA and not entry.spec.startswith(HUB):
        how["spec"] = str(Path(entry.spec).expanduser().absolute())
    data = _load_data(json.dumps(how, sort_keys=True))
    parts = [part.fingerprint() for part in (data.fit, data.select, data.evaluate)]
    identity = digest_of([parts, data.classes, list(data.shape)])
    return identity, {**how, "identity": identity}


def classifier_identity(entry: ClassifierEntry, data: How) -> tuple[How, How]:
    """What determines a classifier that is not trained here, and how to load it."""
    how = entry.model_dump(
        include={"model", "weights", "mean", "std", "classes", "stem", "features"}
    )
    known = {key: value for key, value in how.items() if key != "weights"}
    path = None if entry.weights in (None, RANDOM) else Path(str(entry.weights)).expanduser()
    if path is None and entry.weights is None and entry.model in ZOO:
        path = shipped_weights(entry.model)
    if path is not None:
        known["weights"] = file_digest(path)
        how["weights"] = str(path.absolute())
    file = _model_file(entry.model)
    if file is not None:
        known["model"] = file_digest(file)
        rest = entry.model[len(str(_model_file_text(entry.model))) :]
        how["model"] = f"{file.absolute()}{rest}"
    elif entry.model not in ZOO:
        loaded = _load_classifier(json.dumps(how, sort_keys=True), json.dumps(data, sort_keys=True))
        known["fingerprint"] = loaded.fingerprint()
    how["identity"] = digest_of(known)
    return known, how


def loaded_data(how: How) -> Data:
    """The parts of the data that are used."""
    return _load_data(json.dumps(how, sort_keys=True))


def loaded_classifier(how: How, data: How) -> Classifier:
    """The classifier."""
    return _load_classifier(json.dumps(how, sort_keys=True), json.dumps(data, sort_keys=True))


def prepared(how: How, data: How, device: str | None) -> Prepared:
    """The classifier in the form in which it rounds the same way in every process."""
    return _prepare(json.dumps(how, sort_keys=True), json.dumps(data, sort_keys=True), device)


@lru_cache(maxsize=8)
def _load_data(how: str) -> Data:
    given = json.loads(how)
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
    given = json.loads(how)
    return load_classifier(
        given["model"],
        weights=given["weights"],
        mean=given["mean"],
        std=given["std"],
        classes=given["classes"],
        stem=given["stem"],
        features=given["features"],
        data=_load_data(data),
    )


@lru_cache(maxsize=4)
def _prepare(how: str, data: str, device: str | None) -> Prepared:
    inputs = _load_data(data)
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
    how = entry.model_dump(
        include={"model", "weights", "mean", "std", "classes", "stem", "features"}
    )
    if entry.model in ZOO:
        how = {**how, "weights": RANDOM}
    try:
        return prepared(how, data, None).images_per_second
    except NpprError:
        return None
