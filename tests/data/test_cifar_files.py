import gzip
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data import layouts
from nppr.data import load_data
from nppr.data.cifar_files import read_pickle
from nppr.data.image_sets import StoredImages
from nppr.errors import DataError, SpecError
from nppr.system import bounded


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_cifar_10_is_read_back_exactly(tmp_path: Path, protocol: int) -> None:
    folder, train, test = layouts.cifar_10(tmp_path, protocol=protocol)
    for spec in (folder, str(folder), tmp_path):
        data = load_data(spec)
        assert data.class_names == ("class 0", "class 1", "class 2")
        assert [len(data.fit), len(data.select), len(data.evaluate)] == [24, 6, 6]
        found, known = layouts.learned(data)
        assert np.array_equal(found, train)
        assert known.tolist() == [0, 1, 2] * 10
        assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)


def test_cifar_10_archive(tmp_path: Path) -> None:
    folder, train, test = layouts.cifar_10(tmp_path)
    data = load_data(layouts.tar(folder))
    assert np.array_equal(layouts.learned(data)[0], train)
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)
    assert data.name == "cifar-10-batches-py.tar.gz"


@pytest.mark.parametrize("packed", [False, True])
def test_cifar_100_has_its_fine_labels(tmp_path: Path, packed: bool) -> None:
    folder, train, test = layouts.cifar_100(tmp_path)
    data = load_data(layouts.tar(folder) if packed else folder)
    assert data.class_names == ("a", "b", "c", "d")
    found, known = layouts.learned(data)
    assert np.array_equal(found, train)
    assert known.tolist() == [0, 1, 2, 3] * 5
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)


def test_missing_member_is_named(tmp_path: Path) -> None:
    folder, _, _ = layouts.cifar_10(tmp_path)
    (folder / "data_batch_3").unlink()
    with pytest.raises(DataError, match="data_batch_3 is missing"):
        load_data(folder)
    with pytest.raises(DataError, match="member cifar-10-batches-py/data_batch_3 is missing"):
        load_data(layouts.tar(folder))


def test_truncated_archive_names_the_member(tmp_path: Path) -> None:
    path = layouts.tar(layouts.cifar_10(tmp_path)[0])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"at member cifar-10-batches-py/data_batch_\d"):
        load_data(path)


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(Path(os.environ["NPPR_TEST_MARK"])),)


def test_a_malicious_pickle_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("NPPR_TEST_MARK", str(mark))
    folder, _, _ = layouts.cifar_10(tmp_path)
    (folder / "data_batch_2").write_bytes(pickle.dumps({b"data": Harmful()}, 2))
    for spec in (folder, layouts.tar(folder)):
        with pytest.raises(DataError, match=r"data_batch_2: the pickle asks for .*refused"):
            load_data(spec)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({b"labels": [0, 1]}, "must have 'data'"),
        ({b"data": np.zeros((2, 3072), np.uint8)}, "must have 'labels'"),
        ({b"data": np.zeros((2, 3071), np.uint8), b"labels": [0, 1]}, "rows of 3072"),
        ({b"data": np.zeros((2, 3072), np.int64), b"labels": [0, 1]}, "rows of 3072"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}, "2 images and 1 labels"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, "a"]}, "whole numbers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 3]}, r"0\.\.2, got 0\.\.3"),
        ([1, 2], "a dictionary was expected"),
    ],
)
def test_bad_batches_are_named(tmp_path: Path, batch: object, message: str) -> None:
    folder, _, _ = layouts.cifar_10(tmp_path)
    (folder / "test_batch").write_bytes(pickle.dumps(batch, 2))
    with pytest.raises(DataError, match=message):
        load_data(folder)


def test_pixels_stay_8_bit(tmp_path: Path) -> None:
    data = load_data(layouts.cifar_10(tmp_path)[0])
    for split in (data.fit, data.evaluate):
        assert isinstance(split.images, StoredImages)
        assert split.images.array.dtype == np.uint8


def test_unknown_split_lists_the_splits(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="`split` must be one of test, train, got 'tests'"):
        load_data(layouts.cifar_10(tmp_path)[0], split="tests")


def test_two_data_sets_in_one_folder(tmp_path: Path) -> None:
    layouts.cifar_10(tmp_path)
    layouts.cifar_100(tmp_path)
    with pytest.raises(DataError, match=r"got several: .*cifar-10.*cifar-100"):
        load_data(tmp_path)


def swelling_tar(path: Path, members: list[tuple[str, bytes, int]]) -> Path:
    """An archive of members of zeros, with name, type and size; a longer one ends after 16 MiB."""
    with gzip.open(path, "wb") as stream:
        for name, kind, size in members:
            member = tarfile.TarInfo(name)
            member.type, member.size = kind, size
            stream.write(member.tobuf(tarfile.GNU_FORMAT))
            stream.write(bytes(min(-(-size // 512) * 512, 16 << 20)))
        stream.write(bytes(1024))
    return path


FILE, LONG_NAME = tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            [("test_batch", FILE, 300 << 20)],
            "member test_batch: it takes more than 256 MiB, the limit",
        ),
        ([("long", LONG_NAME, 100 << 20), ("a", FILE, 0)], "headers take over 65536 bytes"),
        ([(f"{number}", FILE, 0) for number in range(1100)], "over 1000 members"),
    ],
)
def test_archives_that_unpack_to_too_much_are_refused(
    tmp_path: Path, members: list[tuple[str, bytes, int]], message: str
) -> None:
    path = swelling_tar(tmp_path / "a.tar.gz", members)
    with layouts.little_memory(), pytest.raises(DataError, match=f"refused: .*{message}"):
        load_data(path)


def test_members_of_an_archive_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(bounded.CIFAR_ARCHIVE_LIMIT, size=2 << 20)
    monkeypatch.setattr("nppr.data.file_trees.CIFAR_ARCHIVE_LIMIT", small)
    members = [(f"{number}/test_batch", FILE, 1 << 20) for number in range(30)]
    path = swelling_tar(tmp_path / "a.tar.gz", members)
    message = "2/test_batch: the archive up to here takes more than 2 MiB, the limit for all"
    with layouts.little_memory(), pytest.raises(DataError, match=message):
        load_data(path)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.arange(3, dtype=">i4"),
        np.ones((1, 4), dtype=np.float32),
    ],
)
def test_arrays_come_back(array: Any, protocol: int) -> None:
    found = read_pickle(pickle.dumps({b"a": array, "n": [1, "x"]}, protocol), "here")
    assert np.array_equal(found["a"], array)
    assert found["a"].dtype == array.dtype
    assert found["n"] == [1, "x"]


def test_what_python_2_wrote() -> None:
    content = (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        b"K\x00\x85U\x01b\x87R(K\x01K\x02K\x03\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T\x06\x00\x00\x00\x00\x01\x02\x03\xfe\xfftbU\x06labels](K\x00K\x01eu."
    )
    found = read_pickle(content, "here")
    assert found["data"].tolist() == [[0, 1, 2], [3, 254, 255]]
    assert found["labels"] == [0, 1]


class Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


@pytest.mark.parametrize(
    "value",
    [
        Call(eval, "1"),
        Call(getattr, 1, "real"),
        Call(np.lib.format.open_memmap, "x"),
        np.array([{}], dtype=object),
        np.float64(1.5),
        complex(1, 2),
    ],
)
def test_everything_else_is_refused(value: Any) -> None:
    with pytest.raises(DataError, match="refused"):
        read_pickle(pickle.dumps({"a": value}, 2), "here")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "here: "),
        (b"not a pickle", "here: "),
        (pickle.dumps({}) + b"more", "ends before the file"),
        (b"\x80\x02}r\xff\xff\xff\x1f.", "out of range"),
        (b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\x00\x00.", "here: "),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "a dictionary was expected"),
    ],
)
def test_damaged_pickles_are_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pickle(content, "here")


def test_an_array_must_have_its_bytes() -> None:
    content = pickle.dumps({"a": np.arange(4, dtype=np.uint8)}, 2)
    assert b"K\x04\x85" in content
    with pytest.raises(DataError, match="does not have 4 bytes"):
        read_pickle(content.replace(b"K\x04\x85", b"K\x05\x85"), "here")


def test_many_values_are_refused_unmade(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nppr.data.cifar_files.MOST_STEPS", 1000)
    assert len(read_pickle(pickle.dumps({"a": list(range(900))}), "here")["a"]) == 900
    with pytest.raises(DataError, match="refused: here: it has more than 1000 steps"):
        read_pickle(pickle.dumps({"a": list(range(1100))}), "here")
