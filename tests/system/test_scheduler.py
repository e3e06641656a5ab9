from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from nppr.errors import DataError, WriteError
from nppr.system.scheduler import Job, JobProgress, run_jobs
from nppr.system.worker_pools import MOST_ATTEMPTS, ProcessPool, open_pool
from system.jobs import die, fail, mark, starts


def diamond(folder: Path) -> list[Job[str]]:
    """`a`, then `b` and `c`, then `d`; the path through `c` is the longest."""
    needs: dict[str, tuple[str, ...]] = {"d": ("b", "c"), "b": ("a",), "c": ("a",), "a": ()}
    return [
        Job(key, partial(mark, folder, key), needs=below, cost=2.0 if key == "c" else 1.0)
        for key, below in needs.items()
    ]


def test_every_job_runs_after_those_it_needs_the_longest_path_first(tmp_path: Path) -> None:
    with open_pool() as pool:
        ended = run_jobs(diamond(tmp_path), pool)
    assert starts(tmp_path) == ["a", "c", "b", "d"]
    assert ended.results == {key: key for key in "abcd"}
    assert not ended.failed
    assert not ended.skipped


def test_a_failure_costs_the_jobs_that_need_it_only(tmp_path: Path) -> None:
    jobs = {job.key: job for job in diamond(tmp_path)}
    jobs["b"] = Job("b", partial(fail, DataError("no\nimages")), needs=("a",), label="load")
    jobs["e"] = Job("e", partial(fail, KeyError("weights")))
    states: list[JobProgress] = []
    with open_pool() as pool:
        ended = run_jobs(list(jobs.values()), pool, progress=states.append)
    assert ended.results == {"a": "a", "c": "c"}
    assert ended.failed == {"b": "no images", "e": "KeyError: 'weights'"}
    assert ended.skipped == {"d": "b"}
    assert "load: no images" in {state.note for state in states}


def test_finished_jobs_count_as_done_and_do_not_run(tmp_path: Path) -> None:
    states: list[JobProgress] = []
    known = {"a": "known", "b": "known", "elsewhere": "known"}
    with open_pool() as pool:
        ended = run_jobs(diamond(tmp_path), pool, finished=known, progress=states.append)
    assert starts(tmp_path) == ["c", "d"]
    assert ended.results == {**known, "c": "c", "d": "d"}
    assert (states[0].done, states[0].total) == (3, 5)


def test_progress_names_what_runs_and_what_ended(tmp_path: Path) -> None:
    states: list[JobProgress] = []
    with open_pool() as pool:
        run_jobs(diamond(tmp_path), pool, progress=states.append, note_of=lambda key: f"<{key}>")
    assert [state.running for state in states if not state.ended][1:] == [
        ("a",), ("c",), ("b",), ("d",)
    ]  # fmt: skip
    assert [(state.ended, state.note, state.done) for state in states if state.ended] == [
        ("a", "<a>", 1), ("c", "<c>", 2), ("b", "<b>", 3), ("d", "<d>", 4)
    ]  # fmt: skip
    assert states[0].seconds_left is None
    assert states[-1].seconds_left == 0


def test_an_error_to_stop_on_is_raised_and_nothing_else_starts(tmp_path: Path) -> None:
    jobs = [
        Job("full", partial(fail, WriteError("the disk is full")), cost=2.0),
        Job("next", partial(mark, tmp_path, "next")),
    ]
    with pytest.raises(WriteError, match="the disk is full"), open_pool() as pool:
        run_jobs(jobs, pool, stop_on=(WriteError,))
    assert starts(tmp_path) == []


def test_inconsistent_jobs_are_refused(tmp_path: Path) -> None:
    run: Callable[[], str] = partial(mark, tmp_path, "x")
    with open_pool() as pool:
        with pytest.raises(ValueError, match="job 'a' needs 'b', which is not a job"):
            run_jobs([Job("a", run, needs=("b",))], pool)
        with pytest.raises(ValueError, match="unique"):
            run_jobs([Job("a", run), Job("a", run)], pool)
        with pytest.raises(ValueError, match="cycle"):
            run_jobs([Job("a", run, needs=("b",)), Job("b", run, needs=("a",))], pool)


@pytest.mark.slow
def test_a_killed_worker_costs_its_own_job_only(tmp_path: Path) -> None:
    jobs = [Job(str(number), partial(mark, tmp_path, str(number))) for number in range(4)]
    jobs[1] = Job("1", partial(die, tmp_path, "1", 1))
    jobs.append(Job("worst", partial(os._exit, 1)))
    with open_pool(workers=2) as pool:
        ended = run_jobs(jobs, pool)
    assert ended.results == {str(number): str(number) for number in range(4)}
    assert sorted(starts(tmp_path)) == ["0", "1", "1", "2", "3"]
    assert list(ended.failed) == ["worst"]
    assert f"its process was lost {MOST_ATTEMPTS} times" in ended.failed["worst"]


@pytest.mark.slow
def test_what_cannot_be_sent_to_a_worker_fails_in_one_line(tmp_path: Path) -> None:
    jobs = [Job("lambda", lambda: "x"), Job("fine", partial(mark, tmp_path, "fine"))]
    with ProcessPool(1) as pool:
        ended = run_jobs(jobs, pool)
    assert ended.results == {"fine": "fine"}
    assert "pickle" in ended.failed["lambda"]
    assert "lost" not in ended.failed["lambda"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, of files it leaves to the system
def test_a_ray_cluster_repeats_the_job_of_a_killed_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # Ray's workers import these tests
    jobs = [*diamond(tmp_path), Job("e", partial(die, tmp_path, "e", 1))]
    jobs.append(Job("f", partial(fail, DataError("no images"))))
    with open_pool(workers=2, ray="local") as pool:
        ended = run_jobs(jobs, pool)
    assert ended.results == {key: key for key in "abcde"}
    assert ended.failed == {"f": "no images"}
    assert starts(tmp_path).count("e") == 2


ENDLESS = """
import os, sys, time
from functools import partial
from pathlib import Path

sys.path.insert(0, {folder!r})
from endless import wait
from nppr.system.process import terminate_like_ctrl_c
from nppr.system.scheduler import Job, run_jobs
from nppr.system.worker_pools import open_pool

if __name__ == "__main__":
    terminate_like_ctrl_c()
    try:
        with open_pool(workers={workers}) as pool:
            run_jobs([Job(str(n), partial(wait, str(n))) for n in range(3)], pool)
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""

WAIT = """
import os, time
from pathlib import Path

FOLDER = Path(__file__).parent

def wait(name):
    (FOLDER / f"started-{name}").write_text(str(os.getpid()))
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        (FOLDER / f"interrupted-{name}").touch()
        raise
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("workers", [1, 2])
def test_signals_interrupt_what_runs_and_leave_no_process(
    tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    (tmp_path / "endless.py").write_text(WAIT)
    (tmp_path / "main.py").write_text(ENDLESS.format(folder=str(tmp_path), workers=workers))
    program = subprocess.Popen(
        [sys.executable, str(tmp_path / "main.py")], stdout=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + 120
        while len(list(tmp_path.glob("started-*"))) < workers and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.2)  # the mark is made a moment before the sleep
        program.send_signal(number)
        assert program.communicate(timeout=60)[0] == "stopped\n"
    finally:
        program.kill()
    assert len(list(tmp_path.glob("interrupted-*"))) == workers
    for started in tmp_path.glob("started-*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(started.read_text()), 0)
