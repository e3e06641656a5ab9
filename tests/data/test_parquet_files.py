"""Parquet files: batches of rows within a bound, whatever a file announces or leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data import layouts
from nppr.data import arrow_tables, load_data
from nppr.data.arrow_tables import read_columns
from nppr.errors import DataError
from nppr.system import bounded
from nppr.system.bounded import Limit, OversizeError

pa = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")

MIB = layouts.MIB
KIND = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
SMALL = Limit(64 * MIB, "a test", "Shorten it.")


def written(path: Path, values: list[bytes], groups: int = 1, **options: Any) -> Path:
    """A file with these images in each of its row groups, and labels."""
    column = pa.array([{"bytes": value, "path": None} for value in values], KIND)
    table = pa.table({"image": column, "label": [n % 2 for n in range(len(values))]})
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return path


@contextmanager
def memory_of_arrow(most: int) -> Iterator[None]:
    """Fails if Arrow takes more memory than that at any time in the block."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < most


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "ENCODED", 16 * MIB)
    monkeypatch.setattr(arrow_tables, "BATCH", 4 * MIB)


@pytest.mark.parametrize("repeated", [True, False], ids=["dictionary", "plain"])
@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_headers_state_what_pages_take(
    tmp_path: Path, repeated: bool, codec: str, version: str
) -> None:
    contents = [layouts.encode(image) for image in layouts.pixels(200, side=6)]
    path = written(
        tmp_path / "a.parquet", contents, groups=2, use_dictionary=repeated, compression=codec,
        data_page_version=version, data_page_size=2000, write_batch_size=8,
    )  # fmt: skip
    with path.open("rb") as stream:
        metadata = pq.ParquetFile(path).metadata
        found = arrow_tables._page_sizes(stream, metadata, ["image", "label"])
    groups = [metadata.row_group(number) for number in range(2)]
    total = sum(group.column(each).total_uncompressed_size for group in groups for each in range(3))
    assert len(found) > (6 if repeated else 24)
    # headers have the least and the largest value of a page, and are not a part of what it unpacks to
    assert 0 < total - sum(found) < 400 * len(found)


@pytest.mark.parametrize("rows", [1, 3, 1024])
def test_batches_give_what_a_whole_read_gives(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = [bytes([n]) * n for n in range(40)]
    path = written(tmp_path / "a.parquet", contents, groups=3)
    monkeypatch.setattr(arrow_tables, "MOST_ROWS", rows)
    found, taken = read_columns(path, ["label", "image"], SMALL)
    assert taken > 3 * sum(map(len, contents))
    assert [row["bytes"] for row in found["image"]] == contents * 3
    assert found["label"] == [0, 1] * 60


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("repeated", [True, False], ids=["dictionary", "plain"])
def test_a_file_that_swells_is_refused_before_memory_is_taken(
    tmp_path: Path, repeated: bool
) -> None:
    values = [bytes(MIB)] * 20
    path = written(tmp_path / "a.parquet", values, compression="zstd", use_dictionary=repeated)
    assert path.stat().st_size < MIB // 16
    message = (
        r"refused: .*a.parquet: it takes more than 16 MiB, the limit for images in a file of"
        r" \S+ KiB\. Encode them as JPEG or PNG, or store them as images in a folder\."
    )
    # a dictionary is only seen to repeat a value as the rows are read, so a batch is taken beyond
    most = (16 + 12) * MIB if repeated else MIB
    with memory_of_arrow(most), pytest.raises(DataError, match=message):
        load_data(path)


@pytest.mark.usefixtures("small_bounds")
def test_all_files_of_a_split_have_one_limit(tmp_path: Path) -> None:
    for number in range(4):
        path = tmp_path / f"train-{number:05d}-of-00004.parquet"
        written(path, [bytes(MIB)] * 6, compression="zstd")
    with pytest.raises(DataError, match=r"00002-of-00004.parquet: it takes more than 16 MiB"):
        load_data(tmp_path)


@pytest.mark.usefixtures("small_bounds")
def test_a_footer_that_hides_what_a_page_takes_is_not_believed(tmp_path: Path) -> None:
    values = [bytes(MIB)] * 20
    path = written(tmp_path / "a.parquet", values, compression="zstd", use_dictionary=False)
    total = thrift(pq.ParquetFile(path).metadata.row_group(0).column(0).total_uncompressed_size)
    content = path.read_bytes()
    assert content.count(total) == 1
    path.write_bytes(content.replace(total, thrift(1000, len(total))))
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    assert column.total_uncompressed_size == 1000
    with memory_of_arrow(MIB), pytest.raises(DataError, match="it takes more than 16 MiB"):
        load_data(path)


def thrift(number: int, length: int = 0) -> bytes:
    """A whole number of the compact protocol, in `length` bytes at least."""
    found, rest = list[int](), 2 * number
    while rest or len(found) < length:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found[:-1], found[-1] & 127])


@pytest.mark.parametrize("name", ["a.b", "a.", "image.bytes"])
def test_a_name_with_a_dot_hides_no_page(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({name: [bytes(MIB)] * 80, "a": [1] * 80})
    pq.write_table(table, path, compression="zstd", use_dictionary=False)
    with memory_of_arrow(MIB), pytest.raises(OversizeError, match="more than 64 MiB"):
        read_columns(path, [name], SMALL)


@pytest.mark.usefixtures("small_bounds")
def test_values_that_arrow_keeps_once_are_counted_in_every_row(tmp_path: Path) -> None:
    column = pa.array([bytes(MIB)] * 40).dictionary_encode()
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": column, "label": [0, 1] * 20}), path)
    with memory_of_arrow(16 * MIB), pytest.raises(OversizeError, match="more than 16 MiB"):
        read_columns(path, ["image"], Limit(16 * MIB, "a test", "Shorten it."))


def test_empty_rows_of_wide_values_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"site": pa.nulls(50, pa.binary(2 * MIB))}), path)
    with memory_of_arrow(MIB), pytest.raises(OversizeError, match="more than 64 MiB"):
        read_columns(path, None, SMALL)


def test_lists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"site": [[1, 2], []], "other": [1, 2]}), path)
    with pytest.raises(ValueError, match=r"column site\.list\.element holds lists"):
        read_columns(path, ["site"], SMALL)
    assert read_columns(path, ["other"], SMALL)[0] == {"other": [1, 2]}


def test_empty_rows_count(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"site": pa.nulls(2_000_000)}), path)
    with pytest.raises(OversizeError, match="more than 64 MiB"):
        read_columns(path, None, SMALL)


def test_more_than_arrow_can_hold_in_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches have at most a stated size, so that any number of gigabytes fits into them."""
    stored = layouts.pixels(60, side=12)
    contents = [layouts.encode(image) for image in stored]
    path = written(tmp_path / "a.parquet", contents, groups=2)
    monkeypatch.setattr(arrow_tables, "BATCH", 30_000)
    sizes: list[int] = []
    monkeypatch.setattr(Limit, "require", lambda _, size, __="": sizes.append(size))
    data = load_data(path)
    batches = np.diff([0, *sizes[2:]])
    assert max(batches) < 30_000 < sum(batches)
    x = layouts.whole(data)["evaluate"]
    assert np.array_equal(layouts.eight_bit(x), stored[data.evaluate.indices % 60])


@pytest.mark.parametrize("cut", [b"", b"\x15", b"\x1d\x01", b"\x15" + b"\xff" * 20, b"\x18\x7f"])
def test_a_damaged_header_is_an_error_of_ours(tmp_path: Path, cut: bytes) -> None:
    path = tmp_path / "header"
    path.write_bytes(cut)
    with path.open("rb") as stream, pytest.raises(ValueError, match="page header"):
        arrow_tables._read_struct(stream)
