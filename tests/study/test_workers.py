from __future__ import annotations

import os
from pathlib import Path

import pytest

from study.toys import Killer, log_of, run_toy, texts_of, times_done, toy

SMALL = toy(grids__0__radii=[0.1], grids__0__seeds=[0])


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that one process writes."""
    folder = tmp_path_factory.mktemp("one")
    run_toy(SMALL, folder)
    return texts_of(folder / "out")


def test_two_workers_with_one_killed_give_the_tables_of_one_process(
    tmp_path: Path, expected: dict[str, str]
) -> None:
    killer = Killer(tmp_path / "cache")
    killer.start()
    ended = run_toy(SMALL, tmp_path, workers=2)
    killer.join()
    assert killer.killed
    assert not ended.failures
    assert texts_of(tmp_path / "out") == expected
    assert max(times_done(tmp_path / "cache").values()) == 1
    begun = {entry["process"] for entry in log_of(tmp_path / "cache")}
    assert os.getpid() not in begun
    assert len(begun) == 3


@pytest.mark.filterwarnings("ignore")  # Ray's own, of files it leaves to the system
def test_a_ray_cluster_gives_the_tables_of_one_process(
    tmp_path: Path, expected: dict[str, str]
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray: pip install 'nppr[ray]'")
    ended = run_toy(SMALL, tmp_path, workers=2, ray="local")
    assert not ended.failures
    assert texts_of(tmp_path / "out") == expected
    assert os.getpid() not in {entry["process"] for entry in log_of(tmp_path / "cache")}
