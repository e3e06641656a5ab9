"""What runs nodes: this process, several processes on this machine, or a Ray cluster.

Each node runs with the number of threads that the study states, on every engine, because a fit rounds
with the number of threads. The cache of a Ray cluster must be a folder that all its machines share.
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
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any, Protocol

from nppr.errors import SpecError
from nppr.study.graph import Node
from nppr.study.node_work import Outcome, perform

LOCAL_CLUSTER = "local"
"""As a Ray address: start a cluster on this machine."""

MOST_ATTEMPTS = 3
ANSWER_SECONDS = 3.0
"""How long an address may take to answer."""
CHECK_SECONDS = 15.0
"""How long Ray's own check may take, in a process of its own."""
HEALTH_CHECK = (sys.executable, "-m", "ray.scripts.scripts", "health-check")


class Engine(Protocol):
    """What runs nodes, `slots` at the same time; a node whose process is lost begins again twice."""

    @property
    def slots(self) -> int:
        """How many nodes it runs at the same time."""

    def submit(self, node: Node) -> Future[Outcome]:
        """Begin a node."""

    def close(self, *, interrupted: bool) -> None:
        """Release all processes; those at work are asked to stop first if interrupted."""


class Inline:
    """The process of the study: a node is done when `submit` returns."""

    slots = 1

    def __init__(self, cache: str) -> None:
        self._cache = cache

    def submit(self, node: Node) -> Future[Outcome]:
        done: Future[Outcome] = Future()
        done.set_result(perform(node, self._cache))
        return done

    def close(self, *, interrupted: bool) -> None:
        """Nothing to release."""


class Workers:
    """Several processes, each with a thread here that gives it nodes."""

    def __init__(self, cache: str, number: int) -> None:
        self.slots = number
        self._cache = cache
        self._processes = [_Process() for _ in range(number)]
        self._idle = [*self._processes]
        self._threads = ThreadPoolExecutor(number)

    def submit(self, node: Node) -> Future[Outcome]:
        return self._threads.submit(self._run, node)

    def close(self, *, interrupted: bool) -> None:
        for process in self._processes:
            process.close(interrupted=interrupted)
        self._threads.shutdown(cancel_futures=True)

    def _run(self, node: Node) -> Outcome:
        process = self._idle.pop()
        try:
            for _ in range(MOST_ATTEMPTS - 1):
                with contextlib.suppress(BrokenProcessPool):
                    return process.run(node, self._cache)
                process.close(interrupted=False)
            return process.run(node, self._cache)
        finally:
            self._idle.append(process)


class _Process:
    """A pool of one process, so that a lost one takes no other node with it."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._number: Future[int] | None = None

    def run(self, node: Node, cache: str) -> Outcome:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare_process
            )
            self._number = self._pool.submit(os.getpid)
        return self._pool.submit(_perform, node, cache).result()

    def close(self, *, interrupted: bool) -> None:
        if self._pool is None:
            return
        if interrupted and self._number is not None and self._number.done():
            with contextlib.suppress(OSError, BrokenProcessPool):
                os.kill(self._number.result(), signal.SIGINT)
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self._number = None


def _prepare_process() -> None:
    """End with the study's own process, even if that is killed; an idle process ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=([parent.sentinel],), daemon=True).start()


def _end_with(sentinels: Sequence[int]) -> None:
    wait_for(sentinels)
    os._exit(1)


def _perform(node: Node, cache: str) -> Outcome:
    """Do a node; Ctrl-C stops it between two steps."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return perform(node, cache)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class RayCluster:
    """Nodes as tasks of Ray; `local` as address starts a cluster of `workers` processes here."""

    def __init__(self, cache: str, address: str, workers: int | None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
        try:
            import ray
        except ImportError as error:
            raise SpecError(
                "`ray` must be installed for --ray. Install it with: pip install 'nppr[ray]'"
            ) from error
        own: dict[str, Any] = {}
        if address == LOCAL_CLUSTER:
            own = {"num_cpus": workers, "include_dashboard": False}
        elif address != "auto":
            _require_answer(address)
        self._ray: Any = ray
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            why = " ".join(str(error).split())[:160]
            raise SpecError(
                f"`ray` must be a cluster that answers, got {address!r}: {why}"
            ) from error
        processors = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self.slots = min(workers or processors, processors)
        self._cache = cache
        self._task: Any = self._ray.remote(num_cpus=1, max_retries=MOST_ATTEMPTS - 1)(perform)
        self._begun: list[Any] = []

    def submit(self, node: Node) -> Future[Outcome]:
        self._begun.append(self._task.remote(node, self._cache))
        future: Future[Outcome] = self._begun[-1].future()
        return future

    def close(self, *, interrupted: bool) -> None:
        for reference in self._begun if interrupted else ():
            self._ray.cancel(reference)
        self._ray.shutdown()


def _require_answer(address: str) -> None:
    """Find out in seconds whether something listens, before Ray waits for minutes."""
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
