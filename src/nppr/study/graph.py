"""The nodes of a study and what each needs: train, fit, measure. A node is a run in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from nppr.core.budget import Budget
from nppr.search.search_settings import SearchSettings, Stage
from nppr.settings import Measure
from nppr.study.chains import Chain
from nppr.study.resources import ClassifierSource, DataSource, digest_of
from nppr.study.study_file import Place
from nppr.train import TrainSettings

ALGORITHM = {"train": 1, "fit": 3, "measure": 3}
"""The version of what each kind of node computes: a change of it makes old results unused."""


@dataclass(frozen=True)
class Task:
    """What a process needs to do a node, paths included."""

    kind: ClassVar[str]
    data: DataSource
    classifier: ClassifierSource
    device: str


@dataclass(frozen=True)
class TrainTask(Task):
    """Train a classifier."""

    kind = "train"
    model: str
    settings: TrainSettings


@dataclass(frozen=True)
class FitTask(Task):
    """Fit one family; `features` is the model that gives features, if it is another one."""

    kind = "fit"
    features: ClassifierSource | None
    budget: Budget
    seed: int
    quantise: bool
    search: SearchSettings
    stage: Stage
    fit_inputs: int


@dataclass(frozen=True)
class MeasureTask(Task):
    """Measure a source, or what was fitted where `source` is None.

    With `per_input_calls`, what was fitted is where the search for the worst law of every input starts.
    """

    kind = "measure"
    features: ClassifierSource | None
    budget: Budget
    settings: Measure
    source: str | None
    per_input_calls: int = 0


@dataclass(frozen=True)
class Node:
    """One run.

    `determined_by` and the hashes in `needs` (by role) make the `hash`. `passes` are forward passes, a
    backward pass counted as two and a half; `calls` are forward and backward passes of a fit.
    """

    label: str
    determined_by: Mapping[str, object]
    needs: Mapping[str, str]
    task: Task = field(compare=False)
    passes: float = 0.0
    calls: int = 0
    speed: float | None = None
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        key = {
            "kind": self.kind,
            "version": ALGORITHM[self.kind],
            "determined_by": self.determined_by,
            "needs": self.needs,
        }
        object.__setattr__(self, "hash", digest_of(key))

    @property
    def kind(self) -> str:
        """`train`, `fit` or `measure`."""
        return self.task.kind

    @property
    def seconds(self) -> float | None:
        """About how long it takes in one process, if the speed of its classifier is known."""
        return None if self.speed is None else self.passes / self.speed + 0.05


@dataclass(frozen=True)
class Cell:
    """A measurement that tables may show: its place on every axis, its seed and its nodes.

    `clean` is a hash of what determines the clean accuracy. Families of one `chain` that are measured
    with the same number of draws may be nested.
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
        """The seed of the fit, if it is of learned noise."""
        return None if self.chain is None else self.chain.seed


@dataclass
class Graph:
    """Nodes by hash, in an order in which every node comes after those it needs."""

    nodes: dict[str, Node] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def by_kind(self) -> dict[str, list[Node]]:
        """Nodes of each kind."""
        found: dict[str, list[Node]] = {kind: [] for kind in ALGORITHM}
        for node in self.nodes.values():
            found[node.kind].append(node)
        return found
