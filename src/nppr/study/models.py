"""The classifiers of a study as the planner sees them, and their nodes: train, clean, features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nppr.classifiers.training import TrainSettings, image_shape
from nppr.errors import NpprError, SpecError
from nppr.study.graph import Node
from nppr.study.resources import (
    LOADED,
    classifier_identity,
    data_identity,
    loaded_data,
    missing_classifier,
    missing_data,
    speed_of,
)
from nppr.study.spec import OWN, ClassifierEntry, DataEntry, StudySpec, Training
from nppr.study.trainings import train_settings

__all__ = ["Model", "Models"]

ABSENT = "absent"
PASSES_OF_A_STEP = 3.0
SHAPE = (3, 32, 32)
"""Of images that are not here."""


@dataclass(frozen=True)
class Model:
    """A classifier with its data: what determines it, how to load it, how large the parts are."""

    entry: ClassifierEntry
    data: DataEntry
    data_identity: str
    inputs: Mapping[str, int]
    determined_by: dict[str, Any]
    how_all: dict[str, Any]
    train: Node | None
    speed: float | None


class Models:
    """All classifiers by name; nodes are made when they are asked for."""

    def __init__(
        self,
        spec: StudySpec,
        common: dict[str, Any],
        run: dict[str, Any],
        add: Callable[[Node], Node],
    ) -> None:
        self.missing: list[str] = []
        self._common, self._run, self._add = common, run, add
        self._data = {each.name: self._find_data(each) for each in spec.data}
        self._entries = {each.name: each for each in spec.classifiers}
        self._first = spec.data[0].name
        self._models = {name: self._find(entry) for name, entry in self._entries.items()}

    def __getitem__(self, name: str) -> Model:
        return self._models[name]

    def label(self, name: str) -> str:
        """How tables call a classifier."""
        return self._entries[name].label or name

    def feature_source(self, name: str, asked: str) -> str:
        """The classifier whose features the noise sees."""
        return asked if asked != OWN else self._entries[name].feature_model or name

    def clean(self, name: str) -> Node:
        """The answers without noise, on all parts."""
        return self._add(self._looked("clean", self[name], self[name]))

    def features(self, name: str, target: str) -> Node:
        """The features of a classifier, of the inputs of the target's data."""
        return self._add(self._looked("features", self[name], self[target]))

    def _looked(self, kind: str, model: Model, target: Model) -> Node:
        how = {**model.how_all, "data": target.how_all["data"]}
        return Node(
            kind=kind,
            label=f"{kind} {model.entry.name}"
            + ("" if model.data.name == target.data.name else f" on {target.data.name}"),
            determined_by={
                **self._common,
                "classifier": model.determined_by,
                "data": target.data_identity,
            },
            needs={} if model.train is None else {"train": model.train.hash},
            how={**self._run, **how},
            passes=sum(target.inputs.values()),
            speed=model.speed,
        )

    def _find_data(self, entry: DataEntry) -> tuple[DataEntry, str, dict[str, Any] | None]:
        absent = missing_data(entry)
        if absent is None:
            identity, how = data_identity(entry)
            return entry, identity, how
        self.missing.append(absent)
        return entry, f"{ABSENT} {entry.name}", None

    def _find(self, entry: ClassifierEntry) -> Model:
        data, identity, how = self._data[entry.data or self._first]
        absent = missing_classifier(entry)
        if absent is not None:
            self.missing.append(absent)
        known: dict[str, Any] = {"classifier": f"{ABSENT} {entry.name}"}
        load: dict[str, Any] = {}
        inputs = _sizes(data, how)
        speed = None if how is None else speed_of(entry, how)
        train = None
        if entry.training is not None:
            train = self._add(self._train(entry, entry.training, identity, how, inputs, speed))
            load = {**entry.model_dump(include=set(LOADED)), "identity": train.hash}
            known = {key: load[key] for key in LOADED if key != "weights"}
        elif absent is None and how is not None:
            known, load = classifier_identity(entry, how)
        together = {"data": how, "classifier": load, "trained": train.hash if train else None}
        return Model(entry, data, identity, inputs, known, together, train, speed)

    def _train(
        self,
        entry: ClassifierEntry,
        training: Training,
        identity: str,
        how: dict[str, Any] | None,
        inputs: Mapping[str, int],
        speed: float | None,
    ) -> Node:
        settings = self._settings(entry, training, how)
        images = settings.epochs * (inputs["fit"] + inputs["select"])
        steps = settings.adversary.steps if settings.adversary else 0
        return Node(
            kind="train",
            label=f"train {entry.name}",
            determined_by={
                "device": self._common["device"],
                "model": entry.model,
                "training": settings.described(),
                "data": identity,
            },
            needs={},
            how={
                **self._run,
                "data": how,
                "stem": entry.stem,
                "training": training.model_dump(mode="json"),
            },
            passes=images * PASSES_OF_A_STEP * (1 + steps),
            calls=images * (1 + steps),
            speed=speed,
        )

    def _settings(
        self, entry: ClassifierEntry, training: Training, how: dict[str, Any] | None
    ) -> TrainSettings:
        """The settings of a training; a mistake in them is found here, before anything runs."""
        try:
            return train_settings(
                entry.model,
                SHAPE if how is None else image_shape(loaded_data(how)),
                training,
                threads=self._common["threads"],
                stem=entry.stem,
            )
        except NpprError as error:
            raise SpecError(f"{error} (In the training of {entry.name!r}.)") from error


def _sizes(entry: DataEntry, how: dict[str, Any] | None) -> dict[str, int]:
    """Inputs of every part; where the data are not here, those expected."""
    if how is not None:
        data = loaded_data(how)
        return {part.kind.name: len(part) for part in (data.fit, data.select, data.evaluate)}
    known = entry.expected.model_dump() if entry.expected else {}
    limits = {
        "fit": entry.fit_inputs,
        "select": entry.select_inputs,
        "evaluate": entry.inputs,
    }
    return {
        part: min(known.get(part, limit or 1), limit or known.get(part, 1))
        for part, limit in limits.items()
    }
