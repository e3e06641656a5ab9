"""Are nested families in order? A larger family can never have a larger infimum.

Pairs that differ in one step only: what the noise may depend on, or the number of components. Both
are measured on the same inputs with the same draws, at the radius of the fit; a pair is in the wrong
order where the larger family is the more robust one beyond chance: paired one-sided 95 % test, Holm
over all pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np

from nppr.noise import Dependency
from nppr.statistics.multiple import holm
from nppr.statistics.paired import exceeds_approximately
from nppr.study.axes import LEARNED
from nppr.study.cache import Cache
from nppr.study.graph import Graph
from nppr.study.records import Record
from nppr.study.work_measure import rates_of

__all__ = ["Orders", "Pair", "orders_of"]

ALPHA = 0.05
POINT = 0.001
SAME = (
    "data", "classifier", "group", "covariance", "upsampler", "loss", "feature_model", "floor",
    "epochs", "norm", "fit_radius",
)  # fmt: skip

APART = "families that are fitted one by one (preset paper) are kept in order by nothing"

Member = tuple[Dependency, int]
Members = dict[Member, Record]


@dataclass(frozen=True)
class Pair:
    """Two nested families: how much more robust the larger one came out, in points."""

    kind: str
    place: dict[str, Any]
    small: str
    large: str
    points: float
    p_value: float
    wrong: bool


@dataclass(frozen=True)
class Orders:
    """All nested pairs of a study; `apart` is whether any were fitted one by one."""

    pairs: tuple[Pair, ...]
    apart: bool = False

    @property
    def wrong(self) -> int:
        """Pairs in the wrong order by the paired test."""
        return sum(pair.wrong for pair in self.pairs)

    @property
    def raw(self) -> int:
        """Pairs in which the larger family is more than 0.1 point more robust, chance or not."""
        return sum(pair.points > 100 * POINT for pair in self.pairs)

    def summary(self) -> str:
        """One sentence."""
        if not self.pairs:
            return "no nested pairs"
        kinds = [
            f"{sum(pair.kind == kind for pair in self.pairs)} of {kind}"
            for kind in ("dependency", "components")
        ]
        apart = f"; {APART}" if self.apart else ""
        return (
            f"{len(self.pairs)} nested pairs ({', '.join(kinds)}): {self.wrong} in the wrong order"
            f" (paired one-sided 95 % test, Holm over all pairs); {self.raw} raw differences above"
            f" 0.1 point, the largest {max(pair.points for pair in self.pairs):.2f} points" + apart
        )


def orders_of(records: Sequence[Record], graph: Graph, cache: Cache) -> Orders:
    """Test all nested pairs among the records."""
    found = []
    for kind, small, large in _pairs(records, graph):
        lower, higher = rates_of(cache, small.cell.measure), rates_of(cache, large.cell.measure)
        excess = 100 * float((higher - lower).mean()) if len(lower) else 0.0
        found.append((kind, small, large, excess, exceeds_approximately(higher, lower)))
    apart = any(not _fit_of(large, graph)["walks"] for _, _, large, *_ in found)
    wrong = holm(np.array([each[-1] for each in found], dtype=np.float64), ALPHA)
    return Orders(
        tuple(
            Pair(
                kind,
                {**{axis: small.place[axis] for axis in SAME}, "fit_seed": small.cell.fit_seed},
                _name(small),
                _name(large),
                excess,
                p,
                bool(rejected),
            )
            for (kind, small, large, excess, p), rejected in zip(found, wrong, strict=True)
        ),
        apart,
    )


def _pairs(records: Sequence[Record], graph: Graph) -> Iterator[tuple[str, Record, Record]]:
    """Nested pairs within each chain, each once, on the first evaluation seed that has both."""
    chains: dict[tuple[Any, ...], dict[int, Members]] = {}
    for record in records:
        place, cell = record.place, record.cell
        if place["source"] == LEARNED and _as_fitted(place):
            chain = (*(place[axis] for axis in SAME), cell.fit_seed, cell.chain)
            member = (Dependency(place["dependency"]), int(place["components"]))
            seeds = chains.setdefault(chain, {})
            seeds.setdefault(cell.seed, {}).setdefault(member, record)
    measured: set[tuple[str, str]] = set()
    for seeds in chains.values():
        families: set[tuple[Member, Member]] = set()
        for members in seeds.values():
            for kind, small, large in _nested(members, graph):
                both = members[small].cell.measure, members[large].cell.measure
                if (small, large) not in families and both not in measured:
                    yield kind, members[small], members[large]
                families.add((small, large))
                measured.add(both)


def _as_fitted(place: Mapping[str, Any]) -> bool:
    """Whether it was measured on what it was fitted on: elsewhere families need not be in order."""
    return bool(place["radius"] == place["fit_radius"] and place["target"] == place["classifier"])


def _nested(members: Members, graph: Graph) -> Iterator[tuple[str, Member, Member]]:
    """The pairs of one chain and seed that differ in one step."""
    counts = sorted({components for _, components in members})
    for components, less, more in product(counts, Dependency, Dependency):
        small, large = (less, components), (more, components)
        nested = {small, large} <= members.keys() and less is not more and more.contains(less)
        if nested and (less is not Dependency.INPUT or _sees_all(members[large], graph)):
            yield "dependency", small, large
    for dependency in Dependency:
        own = [each for each in counts if (dependency, each) in members]
        for few, many in pairwise(own):
            yield "components", (dependency, few), (dependency, many)


def _sees_all(record: Record, graph: Graph) -> bool:
    """Whether input noise lies inside this joint noise: not where its weights see the label only."""
    return not _fit_of(record, graph)["family"]["label_only"]


def _fit_of(record: Record, graph: Graph) -> dict[str, Any]:
    """What determined the fit of learned noise."""
    assert record.cell.fit is not None
    return graph.nodes[record.cell.fit].determined_by


def _name(record: Record) -> str:
    return f"{record.place['dependency']}, K = {record.place['components']}"
