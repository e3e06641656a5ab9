import pickle
from typing import Any

import numpy as np
import pytest

from nppr.data.unpickle import read_pickle
from nppr.errors import DataError


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
def test_damage_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pickle(content, "here")


def test_an_array_must_have_its_bytes() -> None:
    content = pickle.dumps({"a": np.arange(4, dtype=np.uint8)}, 2)
    assert b"K\x04\x85" in content
    with pytest.raises(DataError, match="does not have 4 bytes"):
        read_pickle(content.replace(b"K\x04\x85", b"K\x05\x85"), "here")
