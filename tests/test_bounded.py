import io
import zipfile
from pathlib import Path

import pytest

from nppr import bounded
from nppr.bounded import Limit, OversizeError, array_limit, open_member, read_bounded, read_up_to

GIB = 1 << 30
SMALL = Limit(10, "a test", "Shorten it.")


class Endless:
    """A stream without an end that counts what is taken from it."""

    taken = 0

    def read(self, size: int = -1, /) -> bytes:
        assert 0 < size <= bounded.CHUNK
        self.taken += size
        return bytes(size)


@pytest.mark.parametrize("size", [0, 1, 10, bounded.CHUNK, 3 * bounded.CHUNK + 5])
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
