from pathlib import Path

import numpy as np
import pytest
import torch

from nppr.errors import RunFolderError
from nppr.measuring.blocks import COUNT_ARRAYS, Blocks, FileStore
from nppr.system.records import write_record


def test_round_trip(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    assert store.load(3) is None
    store.save(Blocks(np.array([1, 2, 3]), np.array([1, 1, 0]), np.array([4, 3, 0])), now=True)
    loaded = store.load(3)
    assert loaded is not None
    assert loaded.correct.tolist() == [1, 2, 3]
    assert loaded.finished.tolist() == [1, 1, 0]
    assert loaded.calls.tolist() == [4, 3, 0]


def test_sums_are_kept_to_the_last_bit(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    sums = np.array([[-27631.021115928547, 690.7755278982137], [-np.inf, 1 / 3], [0.0, -0.0]])
    store.save(Blocks(np.arange(3), np.arange(3), np.arange(3), sums), now=True)
    loaded = store.load(3)
    assert loaded is not None
    assert loaded.sums.dtype == np.float64
    assert loaded.sums.tobytes() == sums.tobytes()
    loaded.sums[0] += 1  # what is loaded is added to
    store.save(Blocks.none(3), now=True)
    empty = store.load(3)
    assert empty is not None
    assert empty.sums.size == 0


def test_outcomes_are_kept_merged_and_taken_apart(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    bits = np.array([[255, 1], [7, 128], [0, 3]], np.uint8)
    counts = np.arange(3), np.array([1, 1, 0]), np.arange(3)
    store.save(Blocks(*counts, outcomes=bits), now=True)
    loaded = store.load(3)
    assert loaded is not None
    assert loaded.outcomes.dtype == np.uint8
    assert loaded.outcomes.tolist() == bits.tolist()
    further = Blocks(np.zeros(3, int), np.array([0, 2, 0]), np.zeros(3, int))
    merged = Blocks.merged([loaded, further])
    assert merged.outcomes.tolist() == [[255, 1], [0, 0], [0, 3]]
    whole = Blocks.none(4)
    whole.put(np.array([3, 1, 0]), loaded)
    assert whole.outcomes.tolist() == [[0, 3], [7, 128], [0, 0], [255, 1]]
    assert whole.of(np.array([3, 1, 0])).outcomes.tolist() == bits.tolist()


def test_saves_now_and_then(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks", seconds=1000)
    store.save(Blocks.none(2), now=False)
    assert not store.path.exists()
    store.save(Blocks.none(2), now=True)
    assert store.path.exists()
    quick = FileStore(tmp_path / "quick", seconds=0)
    quick.save(Blocks.none(2), now=False)
    assert quick.path.exists()


def test_blocks_of_other_sizes_and_settings_are_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    store.save(Blocks.none(3), now=True)
    with pytest.raises(RunFolderError, match="of another one"):
        store.load(4)
    with pytest.raises(RunFolderError, match="of another one"):
        FileStore(store.path, identity="other settings").load(3)


def test_a_damaged_file_is_measured_again_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(tmp_path / "blocks")
    store.save(Blocks.none(3), now=True)
    whole = store.path.read_bytes()
    zeros, other = bytes(len(whole)), whole[:-1] + b"\1"
    cut = [whole[:length] for length in (0, 5, len(whole) // 2, len(whole) - 1)]
    for number, content in enumerate([*cut, zeros, other], 1):
        store.path.write_bytes(content)
        assert store.load(3) is None
        assert len(caplog.messages) == number
        assert f"{store.path} is damaged" in caplog.messages[-1]
        assert "\n" not in caplog.messages[-1]
    store.save(Blocks(*np.ones((3, 3), np.int64)), now=True)
    again = store.load(3)
    assert again is not None
    assert again.finished.tolist() == [1, 1, 1]


def test_a_file_that_may_not_be_read_is_not_taken_for_damage(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "blocks")
    store.path.mkdir()
    with pytest.raises(RunFolderError, match="files that can be read"):
        store.load(3)


def test_of_every_input_the_furthest_is_taken() -> None:
    sums = np.array([[0.5], [1.5], [2.5]])
    one = Blocks(np.array([1, 9, 0]), np.array([1, 3, 0]), np.array([2, 18, 0]))
    other = Blocks(np.array([5, 3, 0]), np.array([2, 1, 0]), np.array([10, 6, 0]), sums)
    merged = Blocks.merged([one, other])
    assert merged.correct.tolist() == [5, 9, 0]
    assert merged.finished.tolist() == [2, 3, 0]
    assert merged.calls.tolist() == [10, 18, 0]
    assert merged.sums.tolist() == [[0.5], [-np.inf], [-np.inf]]
    again = Blocks.merged([merged, one, other])
    assert (again.correct.tolist(), again.calls.tolist()) == ([5, 9, 0], [10, 18, 0])


def test_blocks_of_this_measurement_are_discarded(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "pgd.safetensors", "run")
    store.save(Blocks.none(3), now=True)
    FileStore(store.path, "another").discard()
    assert store.load(3) is not None
    store.discard()
    assert not store.path.exists()
    store.discard()


ZEROS = torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    "wrong",
    [
        {"correct": ZEROS.bfloat16()},
        {"correct": ZEROS.double() + torch.nan},
        {"finished": ZEROS - 3},
        {"calls": torch.tensor(1)},
        {"sums": torch.zeros(2, 2, dtype=torch.float64)},
        {"sums": torch.zeros(3, dtype=torch.float64)},
        {"outcomes": torch.zeros(2, 2, dtype=torch.uint8)},
        {"outcomes": torch.zeros(3, 2, dtype=torch.int64)},
        {"sums": torch.full((3, 1), torch.nan, dtype=torch.float64)},
    ],
    ids=lambda each: str(next(iter(each.items()))).replace("\n", ""),
)
def test_blocks_that_nobody_measured_are_refused(
    tmp_path: Path, wrong: dict[str, torch.Tensor]
) -> None:
    counts = dict.fromkeys(COUNT_ARRAYS, ZEROS)
    write_record(tmp_path / "blocks", {**counts, **wrong}, {"identity": "a"})
    with pytest.raises(RunFolderError, match=r"`resume` must find .*Delete it"):
        FileStore(tmp_path / "blocks", "a").load(3)
