"""The order in which nodes are done: what is ready, what is cached, what a failure takes with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from nppr.errors import RunFolderError
from nppr.study.cache import Cache
from nppr.study.graph import Graph, Node
from nppr.study.work import DONE, FULL, Outcome

__all__ = ["Engine", "Finished", "StudyProgress", "execute", "needed"]


class Engine(Protocol):
    """What does nodes: one process, several, or a cluster."""

    @property
    def slots(self) -> int:
        """How many nodes it does at the same time."""

    def submit(self, node: Node) -> None:
        """Begin a node, or queue it."""

    def wait(self) -> list[Outcome]:
        """Wait until at least one node has ended."""

    def close(self, *, interrupted: bool) -> None:
        """Let go of all processes; those at work are asked to stop first if interrupted."""


@dataclass(frozen=True)
class StudyProgress:
    """Where a study stands: nodes done of all, those at work, and about how long is left.

    `ended` is the node that ended just now, `note` what a person should know at once, such as why it
    failed.
    """

    done: int
    total: int
    running: tuple[str, ...]
    seconds_left: float | None
    note: str = ""
    ended: str = ""


@dataclass
class Finished:
    """What came out: results by hash, errors of nodes that failed, and what those took with them."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    cached: int = 0
    ran: int = 0
    notes: list[str] = field(default_factory=list)


def needed(graph: Graph, cache: Cache, finished: Finished) -> list[Node]:
    """The nodes that must run: those whose results are wanted and not there, and what they need.

    What is damaged is left to the process that does the node, which holds its lock.
    """
    wanted = {
        hash_
        for cell in graph.cells
        for hash_ in (cell.measure, cell.clean, cell.fit)
        if hash_ is not None
    }
    todo: list[Node] = []
    for node in reversed(graph.nodes.values()):
        if node.hash not in wanted:
            continue
        found = cache.look(node)
        if found.results is not None:
            finished.results[node.hash] = found.results
            finished.cached += 1
            continue
        wanted |= set(node.needs.values())
        todo.append(node)
    return todo[::-1]


def execute(
    graph: Graph,
    cache: Cache,
    engine: Engine,
    tell: Callable[[StudyProgress], None] | None = None,
) -> Finished:
    """Do what is not cached; a node that fails is reported and the others go on."""
    finished = Finished()
    loop = _Loop(
        graph, engine, finished, {node.hash: node for node in needed(graph, cache, finished)}
    )
    interrupted = True
    try:
        loop.run(tell)
        interrupted = False
    finally:
        engine.close(interrupted=interrupted)
    return finished


class _Loop:
    def __init__(
        self, graph: Graph, engine: Engine, finished: Finished, todo: dict[str, Node]
    ) -> None:
        self.graph, self.engine, self.finished = graph, engine, finished
        self.waiting = todo
        self.running: dict[str, Node] = {}
        self.total = len(todo) + finished.cached
        self.weight = graph.remaining()
        self.passes = self.expected = 0.0
        self.start = time.perf_counter()

    def run(self, tell: Callable[[StudyProgress], None] | None) -> None:
        """Until nothing is left that can be done."""
        self._tell(tell)
        while self.waiting or self.running:
            self._submit()
            if not self.running:
                break
            self._tell(tell)
            for outcome in self.engine.wait():
                label = self.running[outcome.hash].label
                self._take(outcome)
                failure = f"{label}: {outcome.error}" if outcome.error else ""
                self._tell(tell, failure or outcome.note, label)

    def _submit(self) -> None:
        ready = [
            node
            for node in self.waiting.values()
            if not any(need in self.waiting or need in self.running for need in node.needs.values())
        ]
        ready.sort(key=lambda node: -self.weight[node.hash])
        for node in ready[: self.engine.slots - len(self.running)]:
            del self.waiting[node.hash]
            self.running[node.hash] = node
            self.engine.submit(node)

    def _take(self, outcome: Outcome) -> None:
        node = self.running.pop(outcome.hash)
        if outcome.status == FULL:
            raise RunFolderError(
                f"`cache` must have space, {outcome.error}. What is finished is kept: make space and"
                " run the same command again."
            )
        self.passes += node.passes
        self.expected += node.seconds or 0.0
        if outcome.note:
            self.finished.notes.append(outcome.note)
        if outcome.status == DONE:
            self.finished.ran += 1
            self.finished.results[node.hash] = outcome.results
            return
        self.finished.failed[node.hash] = outcome.error
        for above in self.graph.above(node.hash):
            if self.waiting.pop(above.hash, None) is not None:
                self.finished.skipped[above.hash] = node.hash

    def _tell(
        self, tell: Callable[[StudyProgress], None] | None, note: str = "", ended: str = ""
    ) -> None:
        if tell is None:
            return
        done = self.total - len(self.waiting) - len(self.running)
        labels = tuple(node.label for node in self.running.values())
        tell(StudyProgress(done, self.total, labels, self._left(), note, ended))

    def _left(self) -> float | None:
        """What is known of the rest, by how long it took so far to do what was expected."""
        rest = [*self.waiting.values(), *self.running.values()]
        elapsed = time.perf_counter() - self.start
        known = [node.seconds for node in rest if node.seconds is not None]
        if len(known) == len(rest):
            pace = elapsed / self.expected if self.expected else 1 / self.engine.slots
            return pace * sum(known)
        return elapsed / self.passes * sum(node.passes for node in rest) if self.passes else None
