"""Places that run functions: this process, several processes on this machine, or a Ray cluster.

A pool runs functions without arguments. Functions and their results travel between processes, so both
must be picklable: use `functools.partial` of a module's function, not a lambda.

    with open_pool(workers=2) as pool:
        future = pool.submit(partial(pow, 2, 10), threads=1)
        future.result()

Every function runs with the number of threads that the caller states, in every pool, because rounding
depends on the number of threads. If a process dies, only the function it was running is repeated, at
most `MOST_ATTEMPTS` times in all. `nppr.system.scheduler` runs jobs that depend on each other.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from typing import Any, TypeVar

import torch

from nppr.errors import SpecError, reason_of, require_at_most
from nppr.system.specs import MOST_WORKERS

R = TypeVar("R")

LOCAL_CLUSTER = "local"
"""As a Ray address: start a cluster on this machine."""

MOST_ATTEMPTS = 3
"""How often a function is started if its process dies each time."""

ANSWER_SECONDS = 3.0
"""Seconds that an address may take to accept a connection."""

CHECK_SECONDS = 15.0
"""Seconds that the health check of Ray, a separate process, may take."""

HEALTH_CHECK = (sys.executable, "-m", "ray.scripts.scripts", "health-check")


def open_pool(workers: int | None = None, ray: str | None = None) -> WorkerPool:
    """Return the pool for a number of workers and the address of a Ray cluster, if there is one.

    Without both, functions run in this process. `ray` is `HOST:PORT`, `auto`, or `local`, which starts
    a cluster of `workers` processes on this machine.
    """
    if workers is not None and workers < 1:
        raise SpecError(f"`workers` must be a whole number >= 1, got {workers}.")
    require_at_most("workers", workers, MOST_WORKERS)
    if ray is not None:
        return RayPool(ray, workers)
    return WorkerPool() if workers in (None, 1) else ProcessPool(workers or 1)


def pack(thing: object) -> bytes:
    """Return an object as it is sent to another process; `SpecError` if it cannot be sent."""
    try:
        return pickle.dumps(thing)
    except Exception as error:  # objects of the user may fail in any way
        raise SpecError(
            "`workers` must be left out for objects that cannot be sent to another process:"
            f" {reason_of(error)[:200]}. Give names of models and data, or classes and functions of a"
            " module."
        ) from error


class WorkerPool:
    """The process of the caller: `submit` returns when the function has ended. Base of other pools.

    `slots` is the number of functions that run at the same time. `lost` are the errors of a future
    whose process died in every attempt.
    """

    slots = 1
    lost: tuple[type[Exception], ...] = ()

    def submit(self, function: Callable[[], R], *, threads: int) -> Future[R]:
        """Start a function with a number of PyTorch threads; the future holds its result or error."""
        future: Future[R] = Future()
        try:
            future.set_result(run_with_threads(function, threads))
        except Exception as error:  # Ctrl-C passes
            future.set_exception(error)
        return future

    def close(self, *, interrupt: bool) -> None:
        """Release all processes; `interrupt` stops the functions that still run, as Ctrl-C does."""

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(interrupt=kind is not None)


@contextlib.contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Set the number of PyTorch threads, and restore the earlier number at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_with_threads(function: Callable[[], R], threads: int) -> R:
    """Call a function with a number of PyTorch threads."""
    with use_threads(threads):
        return function()


class ProcessPool(WorkerPool):
    """Several processes on this machine. Each starts when it receives its first function."""

    lost = (BrokenProcessPool,)

    def __init__(self, workers: int) -> None:
        self.slots = workers
        self._processes = [_Process() for _ in range(workers)]
        self._idle = [*self._processes]
        self._threads = ThreadPoolExecutor(workers)  # a thread waits for each process
        self._closing = False

    def submit(self, function: Callable[[], R], *, threads: int) -> Future[R]:
        return self._threads.submit(self._run, function, threads)

    def close(self, *, interrupt: bool) -> None:
        self._closing = True
        for process in self._processes:
            process.close(interrupt=interrupt)
        self._threads.shutdown(cancel_futures=True)

    def _run(self, function: Callable[[], R], threads: int) -> R:
        process = self._idle.pop()
        try:
            for attempt in range(1, MOST_ATTEMPTS + 1):
                try:
                    return process.run(function, threads)
                except BrokenProcessPool:
                    if attempt == MOST_ATTEMPTS or self._closing:
                        raise
                    process.close(interrupt=False)
            raise AssertionError
        finally:
            self._idle.append(process)


class _Process:
    """An executor with one process, so that the death of a process affects one function only."""

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None
        self._process_id: Future[int] | None = None

    def run(self, function: Callable[[], R], threads: int) -> R:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                1, mp_context=multiprocessing.get_context("spawn"), initializer=_prepare_process
            )
            self._process_id = self._executor.submit(os.getpid)
        return self._executor.submit(_run_interruptibly, function, threads).result()

    def close(self, *, interrupt: bool) -> None:
        if self._executor is None:
            return
        if interrupt and self._process_id is not None and self._process_id.done():
            with contextlib.suppress(OSError, BrokenProcessPool):
                os.kill(self._process_id.result(), signal.SIGINT)
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = self._process_id = None


def _prepare_process() -> None:
    """Ignore Ctrl-C while idle, and end with the parent process even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=([parent.sentinel],), daemon=True).start()


def _end_with(sentinels: Sequence[int]) -> None:
    wait_for(sentinels)
    os._exit(1)


def _run_interruptibly(function: Callable[[], R], threads: int) -> R:
    """Call a function in a worker process; Ctrl-C interrupts it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return run_with_threads(function, threads)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class RayPool(WorkerPool):
    """A Ray cluster; the address `local` starts one of `workers` processes on this machine.

    All machines of a cluster must see the files that functions read and write under the same paths.
    """

    def __init__(self, address: str, workers: int | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise SpecError(
                "`ray` must be installed for --ray. Install it with: pip install 'nppr[ray]'"
            ) from error
        settings: dict[str, Any] = {}
        if address == LOCAL_CLUSTER:
            settings = {"num_cpus": workers, "include_dashboard": False}
        elif address != "auto":
            _require_cluster(address)
        self._ray: Any = ray
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", **settings)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            why = " ".join(str(error).split())[:160]
            raise SpecError(
                f"`ray` must be a cluster that answers, got {address!r}: {why}"
            ) from error
        processors = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self.slots = min(workers or processors, processors)
        errors = self._ray.exceptions
        self.lost = (errors.WorkerCrashedError, errors.OutOfMemoryError, errors.NodeDiedError)
        self._remote: Any = self._ray.remote(num_cpus=1, max_retries=MOST_ATTEMPTS - 1)(
            run_with_threads
        )
        self._started: list[Any] = []

    def submit(self, function: Callable[[], R], *, threads: int) -> Future[R]:
        self._started.append(self._remote.remote(function, threads))
        future: Future[R] = self._started[-1].future()
        return future

    def close(self, *, interrupt: bool) -> None:
        for reference in self._started if interrupt else ():
            self._ray.cancel(reference)
        self._ray.shutdown()


def _require_cluster(address: str) -> None:
    """Raise `SpecError` within seconds if no Ray cluster answers; Ray itself waits for minutes."""
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
