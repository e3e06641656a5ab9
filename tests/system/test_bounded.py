import io
import os
import socket
import zipfile
from pathlib import Path

import pytest

from helpers import ends_within
from nppr.system import bounded
from nppr.system.bounded import (
    Limit,
    OversizeError,
    array_limit,
    encoded_limit,
    open_member,
    open_regular,
    read_bounded,
    read_up_to,
    require_regular,
)

GIB = 1 << 30
SMALL = Limit(10, "a test", "Shorten it.")


class Endless:
    """A stream without an end that counts what is taken from it."""

    taken = 0

    def read(self, size: int = -1, /) -> bytes:
        assert 0 < size <= bounded.CHUNK_BYTES
        self.taken += size
        return bytes(size)


@pytest.mark.parametrize("size", [0, 1, 10, bounded.CHUNK_BYTES, 3 * bounded.CHUNK_BYTES + 5])
def test_one_byte_past_the_limit_is_read_and_no_more(size: int) -> None:
    stream = Endless()
    with pytest.raises(OversizeError, match=r"more than .* the limit for a test\. Shorten it\."):
        read_bounded(stream, Limit(size, "a test", "Shorten it."))
    assert stream.taken == size + 1


def test_what_is_within_the_limit_comes_back() -> None:
    for size in (0, 9, 10):
        assert read_bounded(io.BytesIO(b"x" * size), SMALL) == b"x" * size
    assert read_up_to(io.BytesIO(b"abc"), 2) == b"ab"
    assert read_up_to(io.BytesIO(b"abc"), -5) == b""


@pytest.mark.parametrize(
    ("packed", "memory", "most"),
    [
        (0, 64 * GIB, 2 * GIB),
        (28 << 20, 64 * GIB, 2 * GIB),
        (GIB, 64 * GIB, 32 * GIB),
        (GIB, 8 * GIB, 6 * GIB),
        (0, GIB, 3 * GIB // 4),
    ],
)
def test_arrays_are_bounded_by_amount_ratio_and_memory(
    monkeypatch: pytest.MonkeyPatch, packed: int, memory: int, most: int
) -> None:
    monkeypatch.setattr(bounded, "_physical_memory", lambda: memory)
    assert array_limit(packed).size == most
    monkeypatch.setattr(bounded, "ARRAYS", 0)
    monkeypatch.setattr(bounded, "ENCODED", 2 * GIB)
    assert encoded_limit(packed).size == most


def test_memory_is_known_or_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bounded._physical_memory() > 1 << 28

    def fail(_: str) -> int:
        raise ValueError

    monkeypatch.setattr("os.sysconf", fail)
    assert bounded._physical_memory() > 1 << 60


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_cannot_be_bounded_are_refused(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", b"a" * 100)
    with (
        zipfile.ZipFile(path) as archive,
        pytest.raises(OversizeError, match="not compressed with deflate"),
    ):
        open_member(archive, "a")


def test_a_regular_file_is_opened_also_behind_a_link(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    (tmp_path / "link").symlink_to(path)
    for each in (path, str(path), tmp_path / "link"):
        assert require_regular(each).st_size == 3
        with open_regular(each) as file:
            assert file.read() == b"abc"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)


def test_what_is_not_a_regular_file_is_named_and_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    os.mkfifo("fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name, kind in (("fifo", "a FIFO"), ("socket", "a socket"), ("/dev/null", "a device")):
            with ends_within(5), pytest.raises(OSError, match=f"it is {kind}, not a regular file"):
                open_regular(name)


def test_a_fifo_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(bounded, "require_regular", lambda _: None)
    with ends_within(5), open_regular(tmp_path / "fifo") as file:
        assert not file.read()
