from __future__ import annotations

import os
import socket
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from nppr.errors import SpecError
from nppr.settings import Run
from nppr.system import worker_pools
from nppr.system.worker_pools import MOST_ATTEMPTS, ProcessPool, open_pool
from system.jobs import die, process_and_threads, starts


def test_without_workers_functions_run_here_with_their_threads() -> None:
    before = torch.get_num_threads()
    with open_pool() as pool:
        assert pool.submit(process_and_threads, threads=2).result() == (os.getpid(), 2)
    assert torch.get_num_threads() == before


def test_an_error_of_a_function_is_that_of_its_future() -> None:
    with open_pool() as pool, pytest.raises(ZeroDivisionError):
        pool.submit(partial(divmod, 1, 0), threads=1).result()


@pytest.mark.slow
def test_workers_are_other_processes_that_stay() -> None:
    with open_pool(workers=2) as pool:
        assert pool.slots == 2
        first, second = (pool.submit(process_and_threads, threads=2).result() for _ in range(2))
    assert first == second
    assert first[1] == 2
    assert first[0] != os.getpid()


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_function_repeated(tmp_path: Path) -> None:
    with ProcessPool(1) as pool:
        saved = pool.submit(partial(die, tmp_path, "saved", MOST_ATTEMPTS - 1), threads=1)
        assert saved.result() == "saved"
        assert starts(tmp_path) == ["saved"] * MOST_ATTEMPTS
        assert pool.submit(partial(pow, 2, 3), threads=1).result() == 8


def test_the_number_of_workers_is_checked() -> None:
    with pytest.raises(SpecError, match="`workers` must be a whole number >= 1, got 0"):
        open_pool(workers=0)
    with pytest.raises(SpecError, match="`workers` must be at most 1,024, got 10,"):
        open_pool(workers=10**22)
    with pytest.raises(SpecError, match="`workers` must be at most 1,024"):
        Run(workers=2000)


def test_a_ray_address_that_does_not_answer_is_one_line_within_seconds() -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    start = time.monotonic()
    with pytest.raises(SpecError, match="`ray` must be a cluster that answers") as caught:
        open_pool(ray="127.0.0.1:9")
    assert time.monotonic() - start < 60  # Ray itself waits for minutes
    assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match="`ray` must be an address, got 'nowhere'"):
        open_pool(ray="nowhere")


@pytest.mark.slow
def test_a_ray_address_where_something_else_listens_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    monkeypatch.setattr(worker_pools, "CHECK_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SpecError, match=f"got '{address}': what listens there is not Ray"):
            open_pool(ray=address)


def test_without_ray_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"pip install 'nppr\[ray\]'"):
        open_pool(ray="local")
