"""Engines on this machine: one process, or several that are started afresh.

Each node runs with the number of threads that the study states, in every engine, for a fit rounds
with the number of threads.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for

from nppr.study.graph import Node
from nppr.study.work import FAILED, Outcome, perform

__all__ = ["Inline", "Workers"]

MOST_ATTEMPTS = 3


class Inline:
    """One process: this one."""

    slots = 1

    def __init__(self, cache: str) -> None:
        self._cache = cache
        self._queue: list[Node] = []

    def submit(self, node: Node) -> None:
        self._queue.append(node)

    def wait(self) -> list[Outcome]:
        return [perform(self._queue.pop(0), self._cache)]

    def close(self, *, interrupted: bool) -> None:
        """Nothing to let go of."""


class Workers:
    """Several processes; a node whose process is lost is begun again, up to three times."""

    def __init__(self, cache: str, number: int) -> None:
        self.slots = number
        self._cache = cache
        self._pools = [_Pool() for _ in range(number)]
        self._busy: dict[Future[Outcome], tuple[_Pool, Node, int]] = {}

    def submit(self, node: Node) -> None:
        self._begin(node, 1)

    def wait(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while not outcomes:
            done, _ = wait(self._busy, return_when=FIRST_COMPLETED)
            for future in done:
                pool, node, attempt = self._busy.pop(future)
                try:
                    outcomes.append(future.result())
                except BrokenProcessPool:
                    pool.restart()
                    if attempt == MOST_ATTEMPTS:
                        why = f"its process was lost {attempt} times, perhaps for want of memory"
                        outcomes.append(Outcome(node.hash, FAILED, error=why))
                    else:
                        self._begin(node, attempt + 1)
        return outcomes

    def close(self, *, interrupted: bool) -> None:
        for pool in self._pools:
            pool.close(interrupted=interrupted)

    def _begin(self, node: Node, attempt: int) -> None:
        taken = [pool for pool, _, _ in self._busy.values()]
        pool = next(each for each in self._pools if each not in taken)
        self._busy[pool.submit(node, self._cache)] = (pool, node, attempt)


class _Pool:
    """One process at a time, so that a lost one takes no other node with it."""

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None
        self._process: Future[int] | None = None

    def submit(self, node: Node, cache: str) -> Future[Outcome]:
        try:
            return self._started().submit(_performed, node, cache)
        except BrokenProcessPool:  # it died while it had nothing to do
            self.restart()
            return self._started().submit(_performed, node, cache)

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                1, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare_process
            )
            self._process = self._executor.submit(os.getpid)
        return self._executor

    def restart(self) -> None:
        self.close(interrupted=False)

    def close(self, *, interrupted: bool) -> None:
        if self._executor is None:
            return
        if interrupted and self._process is not None and self._process.done():
            with contextlib.suppress(OSError, BrokenProcessPool):
                os.kill(self._process.result(), signal.SIGINT)
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = self._process = None


def _prepare_process() -> None:
    """End with the study's own process, even if that is killed; an idle process ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=([parent.sentinel],), daemon=True).start()


def _performed(node: Node, cache: str) -> Outcome:
    """Do a node; Ctrl-C stops it between two steps."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return perform(node, cache)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_with(sentinels: Sequence[int]) -> None:
    wait_for(sentinels)
    os._exit(1)
