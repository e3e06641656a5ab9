from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

import nppr.study.engines
from nppr.errors import SpecError
from study.toys import Killer, log_of, run_toy, texts_of, times_done, toy


def test_an_address_that_does_not_answer_is_one_line_within_seconds(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    import ray  # a busy machine takes its time for this

    assert ray
    start = time.monotonic()
    with pytest.raises(SpecError, match="`ray` must be a cluster that answers") as caught:
        run_toy(toy(), tmp_path, ray="127.0.0.1:9")
    assert time.monotonic() - start < 60  # Ray itself waits for minutes
    assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match="`ray` must be an address, got 'nowhere'"):
        run_toy(toy(), tmp_path, ray="nowhere")


@pytest.mark.slow
def test_an_address_where_something_else_listens_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    monkeypatch.setattr(nppr.study.engines, "CHECK_SECONDS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SpecError, match=f"got '{address}': what listens there is not Ray"):
            run_toy(toy(), tmp_path, ray=address)


def test_without_ray_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"pip install 'nppr\[ray\]'"):
        run_toy(toy(), tmp_path, ray="local")


SMALL = toy(grids__0__radii=[0.1], grids__0__seeds=[0])


@pytest.mark.slow
def test_two_workers_with_one_killed_give_the_tables_of_one_process(tmp_path: Path) -> None:
    run_toy(SMALL, tmp_path / "one")
    killer = Killer(tmp_path / "two/cache")
    killer.start()
    ended = run_toy(SMALL, tmp_path / "two", workers=2)
    killer.join()
    assert killer.killed
    assert not ended.failures
    assert texts_of(tmp_path / "two/out") == texts_of(tmp_path / "one/out")
    assert max(times_done(tmp_path / "two/cache").values()) == 1
    begun = {entry["process"] for entry in log_of(tmp_path / "two/cache")}
    assert os.getpid() not in begun
    assert len(begun) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own, of files it leaves to the system
def test_a_cluster_of_two_with_one_worker_killed_gives_the_tables_of_one_process(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    run_toy(SMALL, tmp_path / "one")
    killer = Killer(tmp_path / "ray/cache")
    killer.start()
    ended = run_toy(SMALL, tmp_path / "ray", ray="local", workers=2)
    killer.join()
    assert killer.killed
    assert not ended.failures
    assert texts_of(tmp_path / "ray/out") == texts_of(tmp_path / "one/out")
    assert max(times_done(tmp_path / "ray/cache").values()) == 1
