"""What runs nodes: this process, several processes on this machine, or a Ray cluster.

Each node runs with the number of threads that the study states, on every engine, for a fit rounds with
the number of threads. The cache of a Ray cluster must be a folder that all its machines share.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any, Protocol

from nppr.errors import SpecError
from nppr.study.graph import Node
from nppr.study.node_work import FAILED, Outcome, perform

MOST_ATTEMPTS = 3
MOST_RETRIES = 3
ANSWER_SECONDS = 3.0
"""How long an address may take to answer."""
CHECK_SECONDS = 15.0
"""How long Ray's own check may take, in a process of its own."""
HEALTH_CHECK = (sys.executable, "-m", "ray.scripts.scripts", "health-check")


class Engine(Protocol):
    """What runs nodes."""

    @property
    def slots(self) -> int:
        """How many nodes it runs at the same time."""

    def submit(self, node: Node) -> None:
        """Begin a node, or queue it."""

    def wait(self) -> list[Outcome]:
        """Wait until at least one node has ended."""

    def close(self, *, interrupted: bool) -> None:
        """Release all processes; those at work are asked to stop first if interrupted."""


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
        """Nothing to release."""


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


class RayCluster:
    """Nodes as tasks of Ray: one that loses its worker is run again.

    Without an address a cluster of `workers` processes is started on this machine.
    """

    def __init__(self, cache: str, address: str | None, workers: int | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
        try:
            import ray
        except ImportError as error:
            raise SpecError(
                "`ray` must be installed for --ray. Install it with: pip install 'nppr[ray]'"
            ) from error
        self._ray: Any = ray
        self._cache = cache
        if address is not None:
            _require_answer(address)
        own = {} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            self._ray.init(
                address=address or "local", log_to_driver=False, logging_level="ERROR", **own
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            why = " ".join(str(error).split())[:160]
            raise SpecError(
                f"`ray` must be a cluster that answers, got {address!r}: {why}"
            ) from error
        processors = int(self._ray.cluster_resources().get("CPU", 1))
        self.slots = min(workers or processors, max(1, processors))
        self._task: Any = self._ray.remote(num_cpus=1, max_retries=MOST_RETRIES)(perform)
        self._busy: dict[Any, Node] = {}

    def submit(self, node: Node) -> None:
        self._busy[self._task.remote(node, self._cache)] = node

    def wait(self) -> list[Outcome]:
        done, _ = self._ray.wait(list(self._busy), num_returns=1)
        outcomes: list[Outcome] = []
        for reference in done:
            node = self._busy.pop(reference)
            try:
                outcomes.append(self._ray.get(reference))
            except self._ray.exceptions.RayError as error:
                why = f"its worker was lost {1 + MOST_RETRIES} times: {str(error).splitlines()[0]}"
                outcomes.append(Outcome(node.hash, FAILED, error=why))
        return outcomes

    def close(self, *, interrupted: bool) -> None:
        if interrupted:
            for reference in self._busy:
                self._ray.cancel(reference)
        self._ray.shutdown()


def _require_answer(address: str) -> None:
    """Find out in seconds whether something listens, before Ray waits for minutes."""
    if address == "auto":
        return
    place = address.removeprefix("ray://")
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        raise SpecError(f"`ray` must be an address, got {address!r}. Example: --ray 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
        if place == address:  # a ray:// address has another protocol
            subprocess.run(
                [*HEALTH_CHECK, "--address", place],
                check=True,
                timeout=CHECK_SECONDS,
                capture_output=True,
            )
    except (OSError, OverflowError, subprocess.SubprocessError) as error:
        foreign = isinstance(error, subprocess.SubprocessError)
        why = "what listens there is not Ray" if foreign else error
        raise SpecError(
            f"`ray` must be a cluster that answers, got {address!r}: {why}. Start one with:"
            " ray start --head"
        ) from error
