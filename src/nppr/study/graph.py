"""The nodes of a study and what each needs: train, fit, measure. A node is a run in a folder.

The fits of a chain differ in dependency, components and floor; each starts from those inside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch

from nppr.core.budget import Budget
from nppr.noise.family import Family
from nppr.noise.rungs import LADDER, Dependency
from nppr.search.search_settings import (
    SearchSettings,
    Stage,
    default_settings,
    make_stage,
    paper_settings,
    walk,
)
from nppr.settings import Measure
from nppr.sources import NPPR, Source
from nppr.study.resources import ClassifierSource, DataSource, digest_of
from nppr.study.study_file import FitEntry, Place
from nppr.train import TrainSettings

ALGORITHM = {"train": 1, "fit": 3, "measure": 3}
"""Version of what each kind of node computes. A new version makes old results unused."""


@dataclass(frozen=True, order=True)
class Member:
    """A family of a chain: the settings in which the families of the chain differ."""

    floor: float
    components: int
    dependency: Dependency

    @property
    def fitted(self) -> Member:
        """The member whose fit this one uses: per-input noise starts from the rung above it."""
        return replace(self, dependency=self.dependency.fitted)


def is_inside(small: Member, large: Member) -> bool:
    """Return whether the second family contains every distribution of the first, and more.

    >>> is_inside(Member(0, 3, Dependency.INPUT), Member(0, 7, Dependency.JOINT))
    True
    """
    return (
        small != large
        and small.floor == large.floor
        and small.components <= large.components
        and large.dependency.contains(small.dependency)
    )


def add_walked(wanted: Iterable[Member]) -> list[Member]:
    """Return the wanted members with those that the search goes through, smaller families first."""
    found = set(wanted)
    found |= {Member(0.0, each.components, each.dependency) for each in found}
    found |= {
        Member(0.0, each.components, other)
        for each in list(found)
        for other in Dependency
        if each.floor == 0 and each.dependency.contains(other)
    }
    return sorted(found, key=lambda x: (x.floor, x.components, x.dependency.depth))


def find_parents(member: Member, members: Iterable[Member]) -> list[Member]:
    """Return the largest members inside this one; for a member with a floor, the one without."""
    if member.floor:
        return [Member(0.0, member.components, member.dependency)]
    within = [each for each in members if is_inside(each, member)]
    return [each for each in within if not any(is_inside(each, other) for other in within)]


@dataclass(frozen=True)
class Chain:
    """The settings that the fits of a chain share: all but dependency, components and floor."""

    classifier: str
    feature_model: str
    norm: str
    radius: float
    covariance: str | None
    upsampler: str | None
    loss: str
    epochs: int | None
    seed: int
    fit: FitEntry

    def family(self, member: Member) -> Family:
        """Return the family of a member."""
        return self.fit.family(
            member.dependency, member.components, self.covariance, self.upsampler, member.floor
        )

    def _settings(self, member: Member, inputs: int) -> SearchSettings:
        """Return the settings of a search up to a member, on a fit split of this many inputs."""
        fit, family, floors = self.fit, self.family(member), (member.floor,)
        given: dict[str, Any] = {"kappa": fit.kappa, "loss": self.loss}
        given |= {} if fit.draws is None else {"draws": fit.draws}
        if fit.is_paper:
            most = max(inputs, fit.step_inputs or 0)
            made = paper_settings(family, inputs=most, floors=floors, **given)
        else:
            made = default_settings(family, floors=floors, **given)
        if Budget.parse(self.norm, self.radius).transform is not None:
            made = made.in_box()
        recipe = replace(made.recipe, inputs=fit.step_inputs or made.recipe.inputs)
        epochs, calls = self.epochs or fit.epochs, fit.calls or made.calls
        if epochs is not None:
            calls = epochs * max(recipe.inputs, inputs) * recipe.draws
        return replace(made, recipe=recipe, calls=max(calls, recipe.inputs * recipe.draws))

    def stage(self, member: Member, inputs: int, *, first: bool) -> tuple[SearchSettings, Stage]:
        """Return the settings of the fit of a member, and its stage.

        Every family uses the same fraction of the calls of a search up to joint noise, so its fit does
        not change when the study grows.
        """
        settings = self._settings(member, inputs)
        if self.fit.is_paper:
            return settings, walk(settings)[0]
        stages = len(LADDER[-1].fitted.path)
        steps = settings.calls // stages // settings.step_calls
        name = f"{member.dependency.value}-{member.components}"
        name += f"-floor-{member.floor:g}" if member.floor else ""
        stage = make_stage(settings, name, settings.family, max(1, steps), first=first)
        calls = max(1, stage.steps) * stage.recipe.inputs * stage.recipe.draws
        return replace(settings, recipe=stage.recipe, calls=calls), stage


@dataclass(frozen=True, kw_only=True)
class Node:
    """One run: everything that a process needs to compute it, and what it costs.

    `passes` are forward passes, with a backward pass counted as two and a half. `calls` are forward and
    backward passes of a fit. `speed` is the number of forward passes per second, if it is known.
    """

    kind: ClassVar[str]
    data: DataSource
    classifier: ClassifierSource
    device: str
    label: str = ""
    passes: float = 0.0
    calls: int = 0
    speed: float | None = None

    @cached_property
    def hash(self) -> str:
        """Hash of the identity and of the nodes it needs."""
        return digest_of([self.kind, ALGORITHM[self.kind], self.identity(), self.needs])

    @property
    def needs(self) -> tuple[str, ...]:
        """Hashes of the nodes whose results this one reads."""
        return () if self.classifier.trained is None else (self.classifier.trained,)

    def identity(self) -> dict[str, object]:
        """Return all settings that determine the result, as plain values."""
        return {"device": torch.device(self.device).type, "data": self.data.identity}

    @property
    def seconds(self) -> float | None:
        """Expected seconds in one process, if the speed of the classifier is known."""
        return None if self.speed is None else self.passes / self.speed + 0.05


@dataclass(frozen=True, kw_only=True)
class TrainNode(Node):
    """Train a classifier."""

    kind = "train"
    settings: TrainSettings

    def identity(self) -> dict[str, object]:
        own = {"model": self.classifier.network.model, "training": self.settings.describe()}
        return super().identity() | own


@dataclass(frozen=True, kw_only=True)
class NoiseNode(Node):
    """Fit or measure noise within a budget, if there is one.

    `features` is the model that gives features, if it is not the classifier itself.
    """

    features: ClassifierSource | None = None
    budget: Budget | None
    quantise: bool
    threads: int

    @property
    def needs(self) -> tuple[str, ...]:
        trained = self.features.trained if self.features else None
        return (*super().needs, trained) if trained else super().needs

    def identity(self) -> dict[str, object]:
        return super().identity() | {
            "classifier": self.classifier.identity,
            "features": self.features.identity if self.features else None,
            "budget": [self.budget.spec, self.budget.radius] if self.budget else None,
            "quantise": self.quantise,
            "threads": self.threads,
        }


@dataclass(frozen=True, kw_only=True)
class FitNode(NoiseNode):
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


@dataclass(frozen=True, kw_only=True)
class MeasureNode(NoiseNode):
    """Measure a source, or the noise of a fit (a hash).

    With `per_input_calls`, that noise is where a search for the worst noise of every input starts.
    """

    kind = "measure"
    settings: Measure
    source: Source | None = None
    fit: str | None = None
    per_input_calls: int = 0

    @property
    def needs(self) -> tuple[str, ...]:
        return (*super().needs, self.fit) if self.fit else super().needs

    def identity(self) -> dict[str, object]:
        return super().identity() | {
            "source": self.source.kind if self.source else NPPR,
            "options": self.source.options(self.data.shape) if self.source else None,
            "per-input": self.per_input_calls,
            "draws": self.settings.draws,
            "confidence": self.settings.confidence,
            "seed": self.settings.seed,
        }


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
        nodes = self.nodes.values()
        return {kind: [node for node in nodes if node.kind == kind] for kind in ALGORITHM}
