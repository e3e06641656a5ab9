import gzip
from pathlib import Path

import numpy as np
import pytest

from data import layouts
from nppr.data import load_data
from nppr.errors import DataError
from nppr.system import bounded


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dot", [False, True])
def test_it_is_read_back_exactly(tmp_path: Path, packed: bool, dot: bool) -> None:
    _, train, test = layouts.mnist(tmp_path / "MNIST" / "raw", packed, dot)
    data = load_data(tmp_path)
    found, known = layouts.learned(data)
    assert np.array_equal(found, train)
    assert known.tolist() == [0, 1, 2, 3, 4] * 4
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)
    assert data.class_names == ("0", "1", "2", "3", "4")


GOOD = layouts.idx(layouts.pixels(10, 1, 7)[:, 0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must start with"),
        (b"\0\0\x0d\x03" + GOOD[4:], "must start with .*got"),
        (b"PK\x03\x04", "must start with"),
        (GOOD[:9], "header ends early"),
        (GOOD[:8] + bytes(8), r"shape \(N, C, H, W\)"),
        (GOOD[:-1], "announces .10, 7, 7. = 490 bytes"),
        (GOOD + b"x", "fewer or more"),
        (GOOD[:4] + b"\xff" * 12 + GOOD[16:], "announces"),
        (gzip.compress(GOOD, mtime=0)[:-1], "t10k-images-idx3-ubyte: "),
        (gzip.compress(GOOD[:4] + b"\xff" * 12, mtime=0), "announces"),
        (layouts.idx(layouts.pixels(9, 1, 7)[:, 0]), "9 images and 10 labels in the test split"),
        (layouts.idx(layouts.pixels(10, 1, 8)[:, 0]), "images of one shape"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    layouts.mnist(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_data(tmp_path)


def test_missing_labels_are_named(tmp_path: Path) -> None:
    layouts.mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="no labels of the test split"):
        load_data(tmp_path)


def test_one_split_is_split_three_ways(tmp_path: Path) -> None:
    layouts.mnist(tmp_path)
    for name in ("t10k-labels-idx1-ubyte", "t10k-images-idx3-ubyte"):
        (tmp_path / name).unlink()
    data = load_data(tmp_path)
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [10, 4, 6]


@pytest.mark.parametrize("nested", [False, True])
def test_images_that_unpack_to_too_much_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nested: bool
) -> None:
    monkeypatch.setattr(bounded, "ARRAYS", layouts.MIB)
    folder = layouts.mnist(tmp_path / "mnist")[0]
    start = layouts.idx(np.zeros((0, 0, 0)))[:4] + np.array([64, 1024, 1024], ">u4").tobytes()
    packed = gzip.compress(start + bytes(64 * layouts.MIB))
    (folder / "train-images-idx3-ubyte").write_bytes(packed)
    spec = layouts.zipped(folder) if nested else folder
    message = (
        r"refused: .*train-images.*: \(64, 1024, 1024\) uint8 takes more than \S+ MiB, the limit"
    )
    with layouts.little_memory(), pytest.raises(DataError, match=message):
        load_data(spec)
