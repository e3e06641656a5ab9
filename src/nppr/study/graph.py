"""The nodes of a study and what each needs: train, clean, features, fit, measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nppr.study.hashing import ALGORITHM, digest_of

__all__ = ["KINDS", "Cell", "Graph", "Node"]

KINDS = ("train", "clean", "features", "fit", "measure")


@dataclass(frozen=True)
class Node:
    """One piece of work.

    `determined_by` and the hashes in `needs` (by role) make the `hash`; `how` is what else a process
    needs to do the work, such as paths. `passes` are forward passes, a backward counted as two and a
    half, and `calls` forward and backward passes of a fit.
    """

    kind: str
    label: str
    determined_by: dict[str, Any]
    needs: dict[str, str]
    how: dict[str, Any] = field(compare=False)
    passes: float = 0.0
    calls: int = 0
    speed: float | None = None
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", digest_of(self.key))

    @property
    def key(self) -> dict[str, Any]:
        """Everything that determines the result."""
        return {
            "kind": self.kind,
            "version": ALGORITHM[self.kind],
            "determined_by": self.determined_by,
            "needs": self.needs,
        }

    @property
    def seconds(self) -> float | None:
        """About how long it takes in one process, if the speed of its classifier is known."""
        return None if self.speed is None else self.passes / self.speed + 0.05


@dataclass(frozen=True)
class Cell:
    """A measurement that tables may show: its place on every axis, its seeds and its nodes.

    `chain` is a hash of all that nested families must share, draws and settings of the fit included.
    """

    place: Mapping[str, Any]
    seed: int
    fit_seed: int | None
    measure: str
    clean: str
    fit: str | None
    chain: str = ""


@dataclass
class Graph:
    """Nodes by hash, in an order in which every node comes after those it needs."""

    nodes: dict[str, Node] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def add(self, node: Node) -> Node:
        """The node, or the one of the same hash that is there already."""
        return self.nodes.setdefault(node.hash, node)

    def by_kind(self) -> dict[str, list[Node]]:
        """Nodes of each kind."""
        found: dict[str, list[Node]] = {kind: [] for kind in KINDS}
        for node in self.nodes.values():
            found[node.kind].append(node)
        return found

    def above(self, hash_: str) -> Iterator[Node]:
        """All nodes that need this one, directly or not."""
        lost = {hash_}
        for node in self.nodes.values():
            if lost & set(node.needs.values()):
                lost.add(node.hash)
                yield node

    def remaining(self) -> dict[str, float]:
        """The longest way from each node to an end, in passes: what to begin with."""
        below: dict[str, float] = {}
        for node in reversed(self.nodes.values()):
            below[node.hash] = below.get(node.hash, 0.0) + node.passes
            for need in node.needs.values():
                below[need] = max(below.get(need, 0.0), below[node.hash])
        return below
