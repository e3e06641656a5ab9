"""Model formats: how models of one format are loaded. `nppr.formats` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nppr.data import Data
from nppr.models.classifier import Model


@dataclass(frozen=True)
class ModelRequest:
    """A model to load: `name` is the path of its file, its name behind the prefix, or Python code."""

    name: str
    weights: str | Path | None = None
    classes: int | None = None
    stem: str | None = None
    data: Data | None = None

    @property
    def outputs(self) -> int | None:
        """The number of classes that a network must have; None if it comes with trained weights.

        A library that is given a number of classes replaces the trained last layer by a random one.
        """
        if self.weights is None:
            return None
        return self.classes or (self.data.classes if self.data else None)


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model, and the normalisation that comes with it or with its weights, if they state one."""

    model: Model
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    states_normalisation: bool = True
    weights: Path | None = None
    """The file of the weights, if the format has loaded it."""


@dataclass(frozen=True)
class ModelFormat:
    """How models of one format are loaded.

    load           loads the model of a request
    has_weights    whether its models hold their weights, so that no others can be given
    other_files    files that people give in its place, by suffix: what they are, and what to do
    """

    load: Callable[[ModelRequest], LoadedModel]
    has_weights: bool = False
    other_files: Mapping[str, str] = field(default_factory=dict)
