"""Model formats: how models of one format are loaded. `nppr.formats` lists them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nppr.data import Data
from nppr.models.classifier import Model


@dataclass(frozen=True)
class ModelRequest:
    """A model to load: `name` is the path of its file, its name after the prefix, or Python code."""

    name: str
    weights: str | Path | None = None
    classes: int | None = None
    stem: str | None = None
    data: Data | None = None


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model, and the normalisation that it or its weights state."""

    model: Model
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    states_normalisation: bool = True
    weights: Path | None = None
    """The file of the weights, if the format loaded it."""


@dataclass(frozen=True)
class ModelFormat:
    """How to load models of one format.

    load           loads the model of a request
    has_weights    whether its models include their weights, so that no others can be given
    other_files    similar files by suffix: what they are, and what to do instead
    """

    load: Callable[[ModelRequest], LoadedModel]
    has_weights: bool = False
    other_files: Mapping[str, str] = field(default_factory=dict)
