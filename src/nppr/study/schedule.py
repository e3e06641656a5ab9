"""The order in which nodes run: what is ready, what is cached, what a failure takes with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from nppr.errors import RunFolderError
from nppr.study.engines import Engine
from nppr.study.graph import Graph, Node
from nppr.study.node_cache import Finished, NodeCache
from nppr.study.node_work import DONE, FULL, Outcome


@dataclass(frozen=True)
class StudyProgress:
    """How far a study is: nodes done of all, those at work, and about how long is left.

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
class Progressed:
    """What came out: finished nodes by hash, errors of those that failed, what those took along."""

    finished: dict[str, Finished] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    cached: int = 0
    ran: int = 0
    notes: list[str] = field(default_factory=list)


def nodes_to_run(graph: Graph, cache: NodeCache, state: Progressed) -> list[Node]:
    """The nodes that must run: those whose results are wanted and not there, and what they need.

    What is damaged is left to the process that runs the node, which holds its lock.
    """
    wanted = {hash_ for cell in graph.cells for hash_ in (cell.measure, cell.fit) if hash_}
    todo: list[Node] = []
    for node in reversed(graph.nodes.values()):
        if node.hash not in wanted:
            continue
        found = cache.look_up(node)
        if found.finished is not None:
            state.finished[node.hash] = found.finished
            state.cached += 1
            continue
        wanted |= set(node.needs.values())
        todo.append(node)
    return todo[::-1]


def execute(
    graph: Graph,
    cache: NodeCache,
    engine: Engine,
    progress: Callable[[StudyProgress], None] | None = None,
) -> Progressed:
    """Run what is not cached; a node that fails is reported and the others go on."""
    state = Progressed()
    todo = {node.hash: node for node in nodes_to_run(graph, cache, state)}
    interrupted = True
    try:
        _Loop(graph, engine, state, todo, progress).run()
        interrupted = False
    finally:
        engine.close(interrupted=interrupted)
    return state


class _Loop:
    def __init__(
        self,
        graph: Graph,
        engine: Engine,
        state: Progressed,
        todo: dict[str, Node],
        progress: Callable[[StudyProgress], None] | None,
    ) -> None:
        self.graph, self.engine, self.state, self.progress = graph, engine, state, progress
        self.todo = todo
        self.ready: list[Node] = []
        self.running: dict[str, Node] = {}
        self.total = len(todo) + state.cached
        self.weight = graph.critical_path()
        self.passes = self.expected = 0.0
        self.start = time.perf_counter()
        needs = {name: set(node.needs.values()) & todo.keys() for name, node in todo.items()}
        self.sorter = TopologicalSorter(needs)
        self.sorter.prepare()

    def run(self) -> None:
        """Until nothing is left that can run."""
        self._report()
        while self.sorter.is_active():
            self.ready += [self.todo[name] for name in self.sorter.get_ready() if name in self.todo]
            self._submit()
            if not self.running:
                break
            self._report()
            for outcome in self.engine.wait():
                label = self.running[outcome.hash].label
                self._take(outcome)
                failure = f"{label}: {outcome.error}" if outcome.error else ""
                self._report(failure or outcome.note, label)

    def _submit(self) -> None:
        self.ready.sort(key=lambda node: -self.weight[node.hash])
        while self.ready and len(self.running) < self.engine.slots:
            node = self.ready.pop(0)
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
            self.state.notes.append(outcome.note)
        del self.todo[node.hash]
        if outcome.status == DONE:
            assert outcome.finished is not None
            self.state.ran += 1
            self.state.finished[node.hash] = outcome.finished
            self.sorter.done(node.hash)
            return
        self.state.failed[node.hash] = outcome.error  # never done: nothing above it becomes ready
        for above in self.graph.above(node.hash):
            if self.todo.pop(above.hash, None) is not None:
                self.state.skipped[above.hash] = node.hash

    def _report(self, note: str = "", ended: str = "") -> None:
        if self.progress is None:
            return
        labels = tuple(node.label for node in self.running.values())
        done = self.total - len(self.todo)
        self.progress(StudyProgress(done, self.total, labels, self._seconds_left(), note, ended))

    def _seconds_left(self) -> float | None:
        """What the rest is expected to take, at the pace so far."""
        rest = list(self.todo.values())
        elapsed = time.perf_counter() - self.start
        known = [node.seconds for node in rest if node.seconds is not None]
        if len(known) == len(rest):
            pace = elapsed / self.expected if self.expected else 1 / self.engine.slots
            return pace * sum(known)
        return elapsed / self.passes * sum(node.passes for node in rest) if self.passes else None
