"""Arrays in files are read back exactly, and no file fills the memory."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from data import layouts
from nppr.data import load_data
from nppr.data.image_sets import StoredImages
from nppr.errors import DataError
from nppr.system import bounded

MIB = layouts.MIB
IMAGES = layouts.pixels(20, side=6)
LABELS = layouts.labels(20, 4)


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "NHW"])
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64, ">f4"])
def test_one_split(tmp_path: Path, layout: str, kind: Any) -> None:
    pixels = IMAGES if layout != "NHW" else IMAGES[:, :1]
    x = {"NCHW": pixels, "NHWC": np.moveaxis(pixels, 1, -1), "NHW": pixels[:, 0]}[layout]
    stored = x if kind is np.uint8 else (x / 255).astype(kind)
    data = load_data(save(tmp_path / "a.npz", x=stored, y=LABELS))
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [10, 4, 6]
    for split in data.splits:
        found, _ = split.batch(np.arange(len(split)))
        assert np.array_equal(layouts.eight_bit(found), pixels[split.indices])
        assert np.array_equal(split.labels, LABELS[split.indices])


def test_own_splits_and_column_labels(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    test = layouts.pixels(8, side=6, seed=1)
    y = LABELS[:, None].astype(np.uint8)
    np.savez_compressed(
        path, x_train=np.asfortranarray(IMAGES), y_train=y, x_test=test, y_test=y[:8]
    )
    data = load_data(path)
    assert np.array_equal(layouts.learned(data)[0], IMAGES)
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)


def test_pixels_stay_as_they_are_stored(tmp_path: Path) -> None:
    data = load_data(save(tmp_path / "a.npz", x=IMAGES, y=LABELS))
    assert isinstance(data.fit.images, StoredImages)
    assert data.fit.images.array.dtype == np.uint8


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": IMAGES}, "must have arrays x and y.*got a in"),
        ({"x": IMAGES}, "member y.npy is missing"),
        ({"x": IMAGES, "y": LABELS[:19]}, "20 images and 19 labels"),
        ({"x": IMAGES, "y": LABELS - 1}, r"0\.\.100000, got -1\.\.2"),
        ({"x": IMAGES, "y": LABELS + 999_999}, r"0\.\.100000, got 999999.* from 0"),
        ({"x": IMAGES, "y": LABELS * 0}, "at least 2 classes, got 1"),
        ({"x": IMAGES, "y": LABELS / 2}, "whole numbers"),
        ({"x": IMAGES[:0], "y": LABELS[:0]}, "got none in the all split"),
        ({"x": IMAGES.astype(int), "y": LABELS}, "8-bit .* got int64"),
        ({"x": IMAGES.reshape(20, -1), "y": LABELS}, r"shape \(N, C, H, W\)"),
        ({"x": IMAGES.astype(float), "y": LABELS}, r"must lie in \[0, 1\]"),
        ({"x": np.array([{}] * 20), "y": LABELS}, "pickled objects"),
    ],
)
def test_bad_arrays_are_named(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(save(tmp_path / "a.npz", **arrays))


LONG = IMAGES.astype(np.longdouble) / 255


@pytest.mark.skipif(LONG.dtype.itemsize <= 8, reason="long numbers have 64 bits here")
@pytest.mark.parametrize("given", [None, "0,1"])
def test_numbers_longer_than_64_bits_are_refused(tmp_path: Path, given: str | None) -> None:
    path = save(tmp_path / "a.npz", x=LONG, y=LABELS)
    with pytest.raises(DataError, match=rf"got {LONG.dtype}.* Convert them: x.astype"):
        load_data(path, input_range=given)
    with pytest.raises(DataError, match=r"array of numbers, got ndarray: .*longdouble"):
        load_data((LONG, LABELS), input_range=given)


def test_a_header_that_announces_too_much_takes_no_memory(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["x.npy"] = members["x.npy"].replace(b"(20, 3, 6, 6), ", b"(2000000000000,)")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match="2000000000000"):
        load_data(path)


def test_another_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match="must be a zip archive, which starts with b'PK', got"):
        load_data(path)


def swelling(path: Path, name: str, shape: tuple[int, ...], size: int, kind: str = "|u1") -> Path:
    """Add an array of zeros that announces a shape and has `size` bytes."""
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
    return layouts.append_swelling(path, f"{name}.npy", header.getvalue(), size)


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_physical_memory", lambda: 64 << 30)
    monkeypatch.setattr(bounded, "ARRAYS", 200 * MIB)


@pytest.mark.usefixtures("small_limit")
def test_an_array_that_unpacks_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    path = swelling(tmp_path / "a.npz", "x", (256, 1, 1024, 1024), 256 * MIB)
    swelling(path, "y", (0,), 0)
    assert path.stat().st_size < MIB
    message = (
        r"refused: .*a.npz: member x.npy: \(256, 1, 1024, 1024\) uint8 takes more than 200 MiB,"
        r" the limit for arrays in a file of \S+ KiB\. Store them without compression"
    )
    with layouts.little_memory(), pytest.raises(DataError, match=message):
        load_data(path)


@pytest.mark.usefixtures("small_limit")
def test_arrays_are_counted_together(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for split in ("train", "test"):
        swelling(path, f"x_{split}", (128, 1, 1024, 1024), 128 * MIB)
        swelling(path, f"y_{split}", (MIB,), MIB)
    with (
        layouts.little_memory(),
        pytest.raises(DataError, match="and the others takes more than 200 "),
    ):
        load_data(path)


def test_more_than_a_header_announces_is_not_read(tmp_path: Path) -> None:
    path = swelling(tmp_path / "a.npz", "x", (4, 1, 8, 8), 200 * MIB)
    swelling(path, "y", (4,), MIB)
    with layouts.little_memory(), pytest.raises(DataError, match="announced, more bytes found"):
        load_data(path)


def test_a_long_header_is_not_read(tmp_path: Path) -> None:
    start = b"\x93NUMPY\x02\x00" + (200 * MIB).to_bytes(4, "little")
    path = layouts.append_swelling(tmp_path / "a.npz", "x.npy", start, 200 * MIB)
    with (
        layouts.little_memory(),
        pytest.raises(DataError, match=r"x.npy: EOF: reading array header"),
    ):
        load_data(path)


def test_a_false_directory_takes_no_memory(tmp_path: Path) -> None:
    header = io.BytesIO()
    shape = {"descr": "|u1", "fortran_order": False, "shape": (2, 1, 2, 2)}
    npy.write_array_header_1_0(header, shape)
    start = header.getvalue()
    path = tmp_path / "a.npz"
    layouts.append_swelling(path, "x.npy", start, 200 * MIB, announced=len(start) + 8)
    np.savez(tmp_path / "y.npz", y=np.array([0, 1]))
    with zipfile.ZipFile(tmp_path / "y.npz") as labels, zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", labels.read("y.npy"))
    with layouts.little_memory(), pytest.raises(DataError, match=r"x.npy: Bad CRC-32"):
        load_data(path)


def test_labels_that_unpack_to_more_than_labels_take(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=IMAGES)
    swelling(path, "y", (100 * MIB,), 100 * MIB)
    with (
        layouts.little_memory(),
        pytest.raises(DataError, match="more than 64 MiB, the limit for lab"),
    ):
        load_data(path)


def test_arrays_beyond_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    monkeypatch.setattr(bounded, "_physical_memory", lambda: 1024)
    with pytest.raises(
        DataError, match=r"0\.75 KiB, the limit for arrays in the memory of this mach"
    ):
        load_data(path)


def test_blank_images_load_however_well_they_pack(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    blank = np.zeros((20_000, 1, 32, 32), dtype=np.uint8)
    np.savez_compressed(path, x=blank, y=layouts.labels(20_000, 10).astype(np.uint8))
    assert path.stat().st_size * 300 < blank.nbytes
    data = load_data(path)
    assert len(data.fit) + len(data.select) + len(data.evaluate) == 20_000


def test_a_negative_size_does_not_pay_for_another_array(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=IMAGES, y=LABELS)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["x.npy"] = members["x.npy"].replace(b"(20, 3, 6, 6)", b"(-9,9999,9,9)")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DataError, match=r"arrays with a size, got \(-9, 9999, 9, 9\)"):
        load_data(path)


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
