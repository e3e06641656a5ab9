from pathlib import Path

import numpy as np
import pytest

from nppr.checkpoint import Blocks, FileStore
from nppr.errors import RunFolderError


def test_round_trip(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    assert store.load(3) is None
    store.save(Blocks(np.array([1, 2, 3]), np.array([1, 1, 0]), 7), now=True)
    loaded = store.load(3)
    assert loaded is not None
    assert loaded.right.tolist() == [1, 2, 3]
    assert loaded.finished.tolist() == [1, 1, 0]
    assert loaded.calls == 7


def test_sums_are_kept_to_the_last_bit(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    sums = np.array([[-27631.021115928547, 690.7755278982137], [-np.inf, 1 / 3], [0.0, -0.0]])
    store.save(Blocks(np.arange(3), np.arange(3), 5, sums), now=True)
    loaded = store.load(3)
    assert loaded is not None
    assert loaded.sums.dtype == np.float64
    assert loaded.sums.tobytes() == sums.tobytes()
    loaded.sums[0] += 1  # what is loaded is added to
    store.save(Blocks.none(3), now=True)
    empty = store.load(3)
    assert empty is not None
    assert empty.sums.size == 0


def test_saves_now_and_then(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks", seconds=1000)
    store.save(Blocks.none(2), now=False)
    assert not store.path.exists()
    store.save(Blocks.none(2), now=True)
    assert store.path.exists()
    quick = FileStore(tmp_path / "quick", seconds=0)
    quick.save(Blocks.none(2), now=False)
    assert quick.path.exists()


def test_damage_and_other_sizes_are_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    store.save(Blocks.none(3), now=True)
    with pytest.raises(RunFolderError, match="of another one"):
        store.load(4)
    with pytest.raises(RunFolderError, match="of another one"):
        FileStore(store.path, identity="other settings").load(3)
    whole = store.path.read_bytes()
    for length in (0, 5, len(whole) // 2, len(whole) - 1):
        store.path.write_bytes(whole[:length])
        with pytest.raises(RunFolderError, match="cannot be read"):
            store.load(3)
