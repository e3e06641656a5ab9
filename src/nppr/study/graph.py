"""The nodes of a study and what each needs: train, fit, measure. A node is a run in a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

KINDS = ("train", "fit", "measure")

ALGORITHM = {"train": 1, "fit": 3, "measure": 2}
"""The version of what each kind of node computes: a change of it makes old results unused."""


def digest_of(content: object) -> str:
    """A hash of plain values; the order of keys does not matter.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """A hash of a file's bytes; a file that did not change is read once."""
    state = path.stat()
    return _digest_bytes(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_bytes(path: Path, size: int, changed: int) -> str:  # noqa: ARG001
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Node:
    """One run.

    `determined_by` and the hashes in `needs` (by role) make the `hash`; `task` is what a process needs
    to do the work, paths included. `passes` are forward passes, a backward pass counted as two and a
    half; `calls` are forward and backward passes of a fit.
    """

    kind: str
    label: str
    determined_by: Mapping[str, object]
    needs: dict[str, str]
    task: object = field(compare=False)
    passes: float = 0.0
    calls: int = 0
    speed: float | None = None
    hash: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hash", digest_of(self.key))

    @property
    def key(self) -> dict[str, object]:
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


Place = Mapping[str, str | int | float]
"""Where a measurement is on every axis."""


@dataclass(frozen=True)
class Cell:
    """A measurement that tables may show: its place on every axis, its seeds and its nodes.

    `clean` is a hash of what determines the clean accuracy; `chain` one of all that nested families
    must share, draws and settings of the fit included.
    """

    place: Place
    seed: int
    fit_seed: int | None
    measure: str
    fit: str | None
    clean: str = ""
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

    def critical_path(self) -> dict[str, float]:
        """The longest path from each node to an end, in passes: what to begin with."""
        below: dict[str, float] = {}
        for node in reversed(self.nodes.values()):
            below[node.hash] = below.get(node.hash, 0.0) + node.passes
            for need in node.needs.values():
                below[need] = max(below.get(need, 0.0), below[node.hash])
        return below
