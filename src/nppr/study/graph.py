"""The nodes of a study and what each needs: train, fit, measure. A node is a run in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import ClassVar

import torch

from nppr.core.budget import Budget
from nppr.search.search_settings import SearchSettings, Stage
from nppr.settings import Measure
from nppr.sources import NPPR, Source
from nppr.study.chains import Chain
from nppr.study.resources import ClassifierSource, DataSource, digest_of
from nppr.study.study_file import Place
from nppr.train import TrainSettings

ALGORITHM = {"train": 1, "fit": 3, "measure": 3}
"""Version of what each kind of node computes. A new version makes old results unused."""


@dataclass(frozen=True)
class NodeWork:
    """Everything that a process needs to compute a node."""

    kind: ClassVar[str]
    data: DataSource
    classifier: ClassifierSource
    device: str

    @property
    def needs(self) -> tuple[str, ...]:
        """Hashes of the nodes whose results this one reads."""
        return () if self.classifier.trained is None else (self.classifier.trained,)

    def identity(self) -> dict[str, object]:
        """Return all settings that determine the result, as plain values."""
        return {"device": torch.device(self.device).type, "data": self.data.identity}


@dataclass(frozen=True)
class TrainWork(NodeWork):
    """Train a classifier."""

    kind = "train"
    settings: TrainSettings

    def identity(self) -> dict[str, object]:
        own = {"model": self.classifier.network.model, "training": self.settings.describe()}
        return super().identity() | own


@dataclass(frozen=True)
class NoiseWork(NodeWork):
    """Fit or measure noise within a budget, if there is one.

    `features` is the model that gives features, if it is not the classifier itself.
    """

    features: ClassifierSource | None
    budget: Budget | None
    quantise: bool
    threads: int

    @property
    def needs(self) -> tuple[str, ...]:
        trained = self.features.trained if self.features else None
        return (*super().needs, *([trained] if trained else []))

    def identity(self) -> dict[str, object]:
        return super().identity() | {
            "classifier": self.classifier.identity,
            "features": self.features.identity if self.features else None,
            "budget": [self.budget.spec, self.budget.radius] if self.budget else None,
            "quantise": self.quantise,
            "threads": self.threads,
        }


@dataclass(frozen=True)
class FitWork(NoiseWork):
    """Fit one family, starting from the fits of the families in `parents` (hashes)."""

    kind = "fit"
    seed: int
    search: SearchSettings
    stage: Stage
    parents: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        return (*super().needs, *self.parents)

    def identity(self) -> dict[str, object]:
        return super().identity() | {
            "stage": asdict(self.stage),
            "walks": self.search.walks,
            "seed": self.seed,
            "parents": len(self.parents),
        }


@dataclass(frozen=True)
class MeasureWork(NoiseWork):
    """Measure a source, or the noise of a fit (a hash).

    With `per_input_calls`, the noise of the fit is the start of a search for the worst noise of every
    input.
    """

    kind = "measure"
    settings: Measure
    source: Source | None = None
    fit: str | None = None
    per_input_calls: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        return (*super().needs, *([self.fit] if self.fit else []))

    def identity(self) -> dict[str, object]:
        source = self.source
        return super().identity() | {
            "source": NPPR if source is None else source.kind,
            "options": None if source is None else source.options(self.data.shape),
            "per-input": self.per_input_calls,
            "draws": self.settings.draws,
            "confidence": self.settings.confidence,
            "seed": self.settings.seed,
        }


@dataclass(frozen=True)
class Node:
    """One run. Its hash is that of the identity of its work and of the nodes it needs.

    `passes` are forward passes, with a backward pass counted as two and a half. `calls` are forward and
    backward passes of a fit. `speed` is the number of forward passes per second, if it is known.
    """

    label: str
    work: NodeWork = field(compare=False)
    passes: float = 0.0
    calls: int = 0
    speed: float | None = None
    identity: Mapping[str, object] = field(init=False)
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        identity = self.work.identity()
        key = [self.kind, ALGORITHM[self.kind], identity, self.needs]
        object.__setattr__(self, "identity", identity)
        object.__setattr__(self, "hash", digest_of(key))

    @property
    def kind(self) -> str:
        """The kind: `train`, `fit` or `measure`."""
        return self.work.kind

    @property
    def needs(self) -> tuple[str, ...]:
        """Hashes of the nodes whose results this one reads."""
        return self.work.needs

    @property
    def seconds(self) -> float | None:
        """Expected seconds in one process, if the speed of the classifier is known."""
        return None if self.speed is None else self.passes / self.speed + 0.05


@dataclass(frozen=True)
class StudyCell:
    """A measurement that tables may show: its place on every axis, its seed and its nodes.

    `clean` is a hash of what determines the clean accuracy. Families of the same `chain` that are
    measured with the same number of draws may be nested.
    """

    place: Place
    seed: int
    measure: str
    clean: str
    draws: int
    fit: str | None = None
    chain: Chain | None = None

    @property
    def fit_seed(self) -> int | None:
        """Seed of the fit, if learned noise is measured."""
        return None if self.chain is None else self.chain.seed


@dataclass
class Graph:
    """Nodes by hash, each after those it needs, and the measurements that tables may show.

    `missing` are the data and weights that are not here.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    cells: list[StudyCell] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def by_kind(self) -> dict[str, list[Node]]:
        """Return the nodes of each kind."""
        found: dict[str, list[Node]] = {kind: [] for kind in ALGORITHM}
        for node in self.nodes.values():
            found[node.kind].append(node)
        return found
