"""The order in which nodes run: what is ready, what is cached, what a failure takes with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from nppr.errors import RunFolderError
from nppr.study.engines import MOST_ATTEMPTS, Engine
from nppr.study.graph import Graph, Node
from nppr.study.node_cache import Finished, NodeCache
from nppr.study.node_work import Outcome
from nppr.system.records import shorten_error


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


ProgressCallback = Callable[[StudyProgress], None]


@dataclass
class Executed:
    """What came out: finished nodes by hash, errors of those that failed, what those took along."""

    finished: dict[str, Finished] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    cached: int = 0
    ran: int = 0
    notes: list[str] = field(default_factory=list)


def execute(
    graph: Graph, cache: NodeCache, engine: Engine, progress: ProgressCallback | None = None
) -> Executed:
    """Run what is not cached; a node that fails is reported and the others go on."""
    interrupted = True
    try:
        loop = _Loop(graph, cache, engine, progress)
        loop.run()
        interrupted = False
    finally:
        engine.close(interrupted=interrupted)
    return loop.result


class _Loop:
    def __init__(
        self, graph: Graph, cache: NodeCache, engine: Engine, progress: ProgressCallback | None
    ) -> None:
        self.graph, self.engine, self.progress = graph, engine, progress
        self.result = Executed()
        self.todo = self._find_work(cache)
        self.ready: list[Node] = []
        self.running: dict[str, Node] = {}
        self.futures: dict[Future[Outcome], Node] = {}
        self.total = len(self.todo) + self.result.cached
        self.passes = self.expected = 0.0
        self.start = time.perf_counter()

    def _find_work(self, cache: NodeCache) -> dict[str, Node]:
        """The nodes that must run: those whose results are wanted and not there, and what they need.

        What is damaged is left to the process that runs the node, which holds its lock.
        """
        wanted = {hash_ for cell in self.graph.cells for hash_ in (cell.measure, cell.fit) if hash_}
        todo: list[Node] = []
        for node in reversed(self.graph.nodes.values()):
            if node.hash not in wanted:
                continue
            finished = cache.look_up(node).finished
            if finished is not None:
                self.result.finished[node.hash] = finished
                self.result.cached += 1
            else:
                wanted |= set(node.needs.values())
                todo.append(node)
        return {node.hash: node for node in reversed(todo)}

    def run(self) -> None:
        """Until nothing is left that can run."""
        needs = {
            name: set(node.needs.values()) & set(self.todo) for name, node in self.todo.items()
        }
        sorter = TopologicalSorter(needs)
        sorter.prepare()
        weight = self.graph.critical_path()
        self._report()
        while sorter.is_active():
            self.ready += [self.todo[name] for name in sorter.get_ready() if name in self.todo]
            self.ready.sort(key=lambda node: -weight[node.hash])
            while self.ready and len(self.running) < self.engine.slots:
                self._submit(self.ready.pop(0))
            if not self.running:
                break
            for future in wait(self.futures, return_when=FIRST_COMPLETED).done:
                node = self.futures.pop(future)
                outcome = _outcome_of(future)
                self._take(node, outcome)
                if outcome.finished is not None:  # else nothing above it becomes ready
                    sorter.done(node.hash)
                failure = f"{node.label}: {outcome.error}" if outcome.error else ""
                self._report(failure or outcome.note, node.label)

    def _submit(self, node: Node) -> None:
        self.running[node.hash] = node
        self._report()
        self.futures[self.engine.submit(node)] = node

    def _take(self, node: Node, outcome: Outcome) -> None:
        if outcome.is_full_disk:
            raise RunFolderError(
                f"`cache` must have space, {outcome.error}. What is finished is kept: make space and"
                " run the same command again."
            )
        del self.running[node.hash], self.todo[node.hash]
        self.passes += node.passes
        self.expected += node.seconds or 0.0
        if outcome.note:
            self.result.notes.append(outcome.note)
        if outcome.finished is not None:
            self.result.ran += 1
            self.result.finished[node.hash] = outcome.finished
            return
        self.result.failed[node.hash] = outcome.error
        for above in self.graph.above(node.hash):
            if self.todo.pop(above.hash, None) is not None:
                self.result.skipped[above.hash] = node.hash

    def _report(self, note: str = "", ended: str = "") -> None:
        if self.progress is not None:
            labels = tuple(node.label for node in self.running.values())
            done = self.total - len(self.todo)
            left = self._seconds_left()
            self.progress(StudyProgress(done, self.total, labels, left, note, ended))

    def _seconds_left(self) -> float | None:
        """What the rest is expected to take, at the pace so far."""
        rest = list(self.todo.values())
        elapsed = time.perf_counter() - self.start
        known = [node.seconds for node in rest if node.seconds is not None]
        if len(known) == len(rest):
            pace = elapsed / self.expected if self.expected else 1 / self.engine.slots
            return pace * sum(known)
        return elapsed / self.passes * sum(node.passes for node in rest) if self.passes else None


def _outcome_of(future: Future[Outcome]) -> Outcome:
    """What a node gave, or what its engine reports of the process that was to do it."""
    try:
        return future.result()
    except Exception as error:
        lost = f"its process was lost {MOST_ATTEMPTS} times, perhaps because memory ran out"
        return Outcome(error=f"{lost}: {shorten_error(error)}")
