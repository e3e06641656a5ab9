"""Run jobs that depend on each other, in one process, in several, or on a Ray cluster.

A job is a picklable function without arguments, with a key. It starts when the jobs in its `needs`
have ended. Results are kept by key. A job that fails costs itself and the jobs that need it.

    from functools import partial
    from nppr.system.scheduler import Job, run_jobs
    from nppr.system.worker_pools import open_pool

    jobs = [Job(f"part-{n}", partial(count, n, folder)) for n in range(4)]
    jobs.append(Job("sum", partial(add_up, folder), needs=tuple(job.key for job in jobs)))
    with open_pool(workers=2) as pool:          # open_pool(ray="10.0.0.1:6379") for a cluster
        ended = run_jobs(jobs, pool, progress=lambda state: print(state.done, state.total))
    ended.results["sum"]                        # what `add_up` returned
    ended.failed                                # {"part-2": "one line"}, if `count(2)` raised
    ended.skipped                               # {"sum": "part-2"}

The scheduler does not hand results from job to job: a job finds the results it needs where the
earlier jobs wrote them. To continue an interrupted run, pass the results that are known as
`finished`; their jobs do not run again.

Ctrl-C and SIGTERM (if the program handles it like Ctrl-C) raise `KeyboardInterrupt` here. The `with`
block then interrupts the functions that still run and waits for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import InitVar, dataclass, field
from functools import partial
from graphlib import TopologicalSorter
from typing import Generic, TypeVar

from nppr.errors import NpprError
from nppr.system.worker_pools import MOST_ATTEMPTS, WorkerPool

logger = logging.getLogger(__name__)

LONGEST_MESSAGE = 500
TICK_SECONDS = 1.0

R = TypeVar("R")


@dataclass(frozen=True)
class Job(Generic[R]):
    """A function to run once.

    `label` is its name for people, by default the key. `cost` is its expected time, in a unit that all
    jobs share. The scheduler starts with the job at the beginning of the longest path.
    """

    key: str
    function: Callable[[], R]
    needs: Collection[str] = ()
    label: str = ""
    cost: float = 1.0

    @property
    def name(self) -> str:
        return self.label or self.key


@dataclass(frozen=True)
class JobProgress:
    """State of a run of jobs; `ended` is the job that has just ended, `note` a message about it."""

    done: int
    total: int
    running: tuple[str, ...]
    seconds_left: float | None
    ended: str = ""
    note: str = ""


@dataclass
class EndedJobs(Generic[R]):
    """Results by key, failures with their message, and skipped jobs with the key of the failed one."""

    results: dict[str, R] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


def run_jobs(
    jobs: Collection[Job[R]],
    pool: WorkerPool,
    *,
    threads: int = 1,
    finished: Mapping[str, R] | None = None,
    stop_on: tuple[type[Exception], ...] = (),
    progress: Callable[[JobProgress], None] | None = None,
    note_of: Callable[[R], str] | None = None,
    tick: Callable[[], None] | None = None,
) -> EndedJobs[R]:
    """Run all jobs, each after those it needs, and return their results and failures.

    Keys are unique, and the `needs` of a job name other jobs or keys of `finished`. The caller opens
    and closes the `pool`. Each job runs with a number of PyTorch `threads`. `finished` holds results of
    an earlier run, which count as done. An error in `stop_on`, such as a full disk, ends everything and
    is raised here. `progress` is called in this process when a job starts or ends; `note_of` returns a
    message about a result for it, or an empty text. `tick` is called here every second while jobs run.
    """
    known = dict(finished or {})
    keys = {job.key for job in jobs}
    if len(keys) < len(jobs):
        raise ValueError("the keys of jobs must be unique")
    for job in jobs:
        if absent := set(job.needs) - keys - known.keys():
            raise ValueError(f"job {job.key!r} needs {min(absent)!r}, which is not a job")
    return _Schedule(jobs, pool, threads, known, stop_on, progress, note_of, tick).run()


def failure_message(error: BaseException) -> str:
    """Return the message of an error as one line, with its type if it is unexpected.

    >>> failure_message(KeyError("weights"))
    "KeyError: 'weights'"
    """
    text = " ".join(str(error).split()) or type(error).__name__
    shown = text if isinstance(error, NpprError) else f"{type(error).__name__}: {text}"
    return shown[:LONGEST_MESSAGE]


@dataclass(frozen=True)
class _Attempt(Generic[R]):
    """The one result of a job, or its failure; `error` is an error that stops all jobs."""

    results: tuple[R, ...] = ()
    failure: str = ""
    error: Exception | None = None


def _attempt(function: Callable[[], R], stop_on: tuple[type[Exception], ...]) -> _Attempt[R]:
    """Call the function of a job; errors become text, as not every error can travel."""
    try:
        return _Attempt((function(),))
    except stop_on as error:
        return _Attempt(error=error)
    except Exception as error:  # one job must not stop the others
        logger.debug("a job failed", exc_info=True)
        return _Attempt(failure=failure_message(error))


@dataclass(eq=False)
class _Schedule(Generic[R]):
    """Waiting, running and ended jobs; the arguments are those of `run_jobs`."""

    jobs: InitVar[Collection[Job[R]]]
    pool: WorkerPool
    threads: int
    finished: InitVar[dict[str, R]]
    stop_on: tuple[type[Exception], ...]
    progress: Callable[[JobProgress], None] | None
    note_of: Callable[[R], str] | None
    tick: Callable[[], None] | None
    running: dict[Future[_Attempt[R]], Job[R]] = field(default_factory=dict)
    spent: float = 0.0
    start: float = field(default_factory=time.perf_counter)

    def __post_init__(self, jobs: Collection[Job[R]], finished: dict[str, R]) -> None:
        self.left = {job.key: job for job in jobs if job.key not in finished}
        self.total = len(finished) + len(self.left)
        self.needs = {key: set(job.needs) & self.left.keys() for key, job in self.left.items()}
        self.order = tuple(TopologicalSorter(self.needs).static_order())
        self.ended = EndedJobs(finished)
        self.path_costs: dict[str, float] = {}
        """The cost of the longest path that starts at each job."""
        for key in reversed(self.order):
            cost = self.path_costs.get(key, 0.0) + self.left[key].cost
            self.path_costs[key] = cost
            for need in self.needs[key]:
                self.path_costs[need] = max(self.path_costs.get(need, 0.0), cost)

    def run(self) -> EndedJobs[R]:
        sorter = TopologicalSorter(self.needs)
        sorter.prepare()
        ready: list[Job[R]] = []
        self._report()
        while sorter.is_active():
            ready += [self.left[key] for key in sorter.get_ready()]
            ready.sort(key=lambda job: -self.path_costs[job.key])
            while ready and len(self.running) < self.pool.slots:
                self._start(ready.pop(0))
            if not self.running:  # all remaining jobs need a job that failed
                break
            seconds = TICK_SECONDS if self.tick else None
            ended = wait(self.running, timeout=seconds, return_when=FIRST_COMPLETED).done
            if self.tick:
                self.tick()
            for future in ended:
                job = self.running.pop(future)
                if self._end(job, future):
                    sorter.done(job.key)
        return self.ended

    def _start(self, job: Job[R]) -> None:
        self._report(starting=(job.name,))
        function = partial(_attempt, job.function, self.stop_on)
        self.running[self.pool.submit(function, threads=self.threads)] = job

    def _end(self, job: Job[R], future: Future[_Attempt[R]]) -> bool:
        """Keep the result of a job, or skip those that need it; return whether it succeeded."""
        attempt = self._attempt_of(future)
        if attempt.error is not None:
            raise attempt.error
        del self.left[job.key]
        self.spent += job.cost
        if attempt.results:
            (result,) = attempt.results
            self.ended.results[job.key] = result
            note = self.note_of(result) if self.note_of else ""
        else:
            self.ended.failed[job.key] = attempt.failure
            note = f"{job.name}: {attempt.failure}"
            self._skip_dependants(job.key)
        self._report(ended=job.name, note=note)
        return bool(attempt.results)

    def _attempt_of(self, future: Future[_Attempt[R]]) -> _Attempt[R]:
        """Return the report of a job's process, or a failure if that process died."""
        try:
            return future.result()
        except self.pool.lost as error:
            why = f"its process was lost {MOST_ATTEMPTS} times, perhaps because memory ran out"
            return _Attempt(failure=f"{why}: {failure_message(error)}")
        except Exception as error:  # the function or its result could not be sent
            return _Attempt(failure=failure_message(error))

    def _skip_dependants(self, failed: str) -> None:
        """Drop the jobs that need a failed one, directly or through others."""
        lost = {failed}
        for key in self.order:
            if lost & self.needs[key]:
                lost.add(key)
                if self.left.pop(key, None) is not None:
                    self.ended.skipped[key] = failed

    def _report(self, *, starting: tuple[str, ...] = (), ended: str = "", note: str = "") -> None:
        if self.progress is None:
            return
        running = (*(job.name for job in self.running.values()), *starting)
        done, seconds = self.total - len(self.left), None
        if self.spent:  # at the pace so far
            elapsed = time.perf_counter() - self.start
            seconds = elapsed / self.spent * sum(job.cost for job in self.left.values())
        self.progress(JobProgress(done, self.total, running, seconds, ended, note))
