from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from nppr.errors import SpecError
from study.toys import log_of, run_toy, texts_of, times_done, toy


def test_an_address_that_does_not_answer_is_one_line_within_seconds(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    start = time.monotonic()
    with pytest.raises(SpecError, match="`ray` must be a cluster that answers") as caught:
        run_toy(toy(), tmp_path, ray="127.0.0.1:9")
    assert time.monotonic() - start < 15
    assert "\n" not in str(caught.value)
    with pytest.raises(SpecError, match="`ray` must be an address, got 'nowhere'"):
        run_toy(toy(), tmp_path, ray="nowhere")


def test_without_ray_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SpecError, match=r"pip install 'nppr\[ray\]'"):
        run_toy(toy(), tmp_path, ray="local")


@pytest.mark.filterwarnings("ignore")  # Ray's own, of files it leaves to the system
def test_a_cluster_of_two_with_one_worker_killed_gives_the_tables_of_one_process(
    tmp_path: Path,
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    small = toy(grids__0__radii=[0.1], grids__0__seeds=[0])
    run_toy(small, tmp_path / "one")
    killed: list[int] = []

    def kill() -> None:
        end = time.monotonic() + 120
        while not killed and time.monotonic() < end:
            begun = [e for e in log_of(tmp_path / "ray/cache") if e["label"].startswith("fit")]
            if begun:
                os.kill(begun[0]["process"], signal.SIGKILL)
                killed.append(begun[0]["process"])
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    ended = run_toy(small, tmp_path / "ray", ray="local", workers=2)
    killer.join()
    assert killed
    assert not ended.failures
    assert texts_of(tmp_path / "ray/out") == texts_of(tmp_path / "one/out")
    assert max(times_done(tmp_path / "ray/cache").values()) == 1
