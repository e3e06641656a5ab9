from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nppr.errors import RunFolderError
from nppr.rare import Rare, Status, joined, rare_csv, read_rare, write_rare
from nppr.rare.files import ARRAYS

FOUND = Rare(
    source="uniform",
    positions=np.array([2, 5]),
    indices=np.array([12, 15]),
    log_p=np.log([1e-3, 1e-7]),
    log_low=np.log([5e-4, 1e-8]),
    log_high=np.log([2e-3, 1e-6]),
    spread=np.array([0.1, 0.5]),
    calls=np.array([400, 5000]),
    status=(Status.FOUND, Status.BELOW),
    particles=100,
    replicates=5,
    confidence=0.95,
)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "rare" / "a.safetensors"
    assert read_rare(path, "run") is None
    write_rare(path, FOUND, "run")
    again = read_rare(path, "run")
    assert again is not None
    for name in ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(FOUND, name))
    facts = ("source", "status", "particles", "replicates", "confidence")
    assert all(getattr(again, name) == getattr(FOUND, name) for name in facts)


def test_another_run_and_damage_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_rare(path, FOUND, "run")
    with pytest.raises(RunFolderError, match="another run"):
        read_rare(path, "other")
    whole = path.read_bytes()
    for size in (0, 4, 60, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RunFolderError, match="whole files"):
            read_rare(path, "run")


def test_groups_are_joined_in_order() -> None:
    other = replace(FOUND, positions=np.array([7, 9]), particles=120)
    both = joined([FOUND, other])
    assert both.positions.tolist() == [2, 5, 7, 9]
    assert both.status == FOUND.status * 2
    assert both.particles == 100


def test_lines() -> None:
    lines = rare_csv({"uniform": FOUND}).splitlines()
    assert lines[0] == "index,source,p,low,high,status,calls"
    assert lines[1] == "12,uniform,0.001,0.0005,0.002,found,400"
    assert lines[2] == "15,uniform,1e-07,1e-08,1e-06,below,5000"
