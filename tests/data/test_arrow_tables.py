"""Arrow tables are read back exactly, in batches of rows within a bound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data import layouts
from helpers import ends_within
from nppr.data import arrow_tables, load_data
from nppr.data.arrow_tables import read_columns
from nppr.errors import DataError, SpecError
from nppr.system import bounded
from nppr.system.bounded import Limit, OversizeError

pa = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra parquet is not installed")

IMAGES = layouts.pixels(20, side=6)
CONTENTS = [layouts.encode(image) for image in IMAGES]
LABELS = layouts.labels(20, 2).tolist()


def test_files_named_by_split(tmp_path: Path) -> None:
    test = layouts.pixels(6, side=6, seed=1)
    layouts.parquet(tmp_path / "train.parquet", CONTENTS, LABELS)
    layouts.parquet(
        tmp_path / "test.parquet", [layouts.encode(image) for image in test], LABELS[:6]
    )
    data = load_data(tmp_path)
    assert data.class_names == ("cat", "dog")
    found, known = layouts.learned(data)
    assert np.array_equal(found, IMAGES)
    assert known.tolist() == LABELS
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)


@pytest.mark.parametrize(
    "names",
    [
        ("data/train-00000-of-00002", "data/train-00001-of-00002", "data/validation-00000-of-00001"),
        ("data/train-00000-of-00002-0123456789abcdef", "data/train-00001-of-00002-0123456789abcdee",
         "data/test-00000-of-00001"),
        ("plain/train/0000", "plain/train/0001", "plain/test/0000"),
    ],
)  # fmt: skip
def test_splits_in_several_files(tmp_path: Path, names: tuple[str, str, str]) -> None:
    for name, rows in zip(names, (slice(0, 8), slice(8, 16), slice(16, 20)), strict=True):
        layouts.parquet(tmp_path / f"{name}.parquet", CONTENTS[rows], LABELS[rows])
    data = load_data(tmp_path)
    assert np.array_equal(layouts.learned(data)[0], IMAGES[:16])
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), IMAGES[16:])


def test_one_file_is_one_split(tmp_path: Path) -> None:
    data = load_data(layouts.parquet(tmp_path / "train-00000-of-00009.parquet", CONTENTS, LABELS))
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [10, 4, 6]


@pytest.mark.parametrize(
    ("classes", "names"), [(LABELS, ("0", "1")), (["b", "a"] * 10, ("a", "b"))]
)
def test_without_metadata(tmp_path: Path, classes: list[Any], names: tuple[str, ...]) -> None:
    data = load_data(layouts.parquet(tmp_path / "a.parquet", CONTENTS, classes, None))
    assert data.class_names == names


def test_plain_bytes_and_paths(tmp_path: Path) -> None:
    for number, content in enumerate(CONTENTS):
        layouts.write(tmp_path / "files" / f"{number}.png", content)
    rows = [{"bytes": None, "path": f"files/{number}.png"} for number in range(20)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for name, column in (("plain", pa.array(CONTENTS)), ("paths", pa.array(rows, kind))):
        table = pa.table({"image": column, "label": LABELS})
        pq.write_table(table, tmp_path / f"{name}.parquet")
        data = load_data(tmp_path / f"{name}.parquet")
        found, _ = data.evaluate.batch(np.arange(6))
        assert np.array_equal(layouts.eight_bit(found), IMAGES[data.evaluate.indices])


def with_paths(path: Path, files: list[str]) -> Path:
    """A parquet file whose rows name files and hold no images."""
    rows = [{"bytes": None, "path": file} for file in files]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"image": pa.array(rows, kind), "label": [0, 1] * 10}), path)
    return path


@pytest.mark.parametrize("place", ["absolute", "above", "link", "linked folder"])
def test_a_row_that_names_a_file_outside_the_folder_is_refused(tmp_path: Path, place: str) -> None:
    secret = layouts.write(tmp_path / "secret" / "1.png", CONTENTS[0])
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "link.png").symlink_to(secret)
    (folder / "linked").symlink_to(secret.parent)
    names = {"absolute": str(secret), "above": "../secret/1.png", "link": "link.png"}
    path = with_paths(folder / "a.parquet", [names.get(place, "linked/1.png")] * 20)
    message = r"must stay in its folder .*data, but .*row \d+ leads to .*secret/1.png"
    with pytest.raises(DataError, match=message):
        layouts.whole(load_data(path))


def test_a_row_may_name_a_file_within_the_folder_in_any_way(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "real")
    for name in ("1.png", "sub/2.png"):
        layouts.write(tmp_path / "real" / name, CONTENTS[0])
    names = ["1.png", "sub/../1.png", str(tmp_path / "data" / "1.png"), "sub/2.png"]
    data = load_data(with_paths(tmp_path / "data" / "a.parquet", names * 5))
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"])[0], IMAGES[0])


def test_a_row_that_names_a_fifo_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.png")
    path = with_paths(tmp_path / "a.parquet", ["1.png"] * 20)
    with ends_within(5), pytest.raises(DataError, match=r"row \d+: it is a FIFO, not a regular"):
        layouts.whole(load_data(path))


def test_a_parquet_file_behind_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    layouts.parquet(tmp_path / "elsewhere.parquet", CONTENTS, LABELS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(DataError, match="must stay in its folder"):
        load_data(tmp_path / "data")
    assert len(load_data(tmp_path / "data" / "train.parquet").evaluate) == 6


@pytest.mark.parametrize(
    ("contents", "classes", "names", "message"),
    [
        (CONTENTS, [0, 2] * 10, ("a", "b"), r"0\.\.1, got 0\.\.2 in the a split"),
        (CONTENTS, [-1, 0] * 10, ("a", "b"), r"0\.\.1, got -1\.\.0"),
        (CONTENTS, [-1, 2] * 10, None, r"0\.\.100000, got -1\.\.2"),
        (CONTENTS, [0] * 20, None, "at least 2 classes"),
        (CONTENTS, [0, None] * 10, None, "whole numbers or words"),
        ([], [0][:0], ("a", "b"), "got none"),
        ([*CONTENTS[:-1], None], LABELS, None, "row 19: there is no image"),
        ([*CONTENTS[:-1], b"x"], LABELS, None, "row 19: cannot identify"),
        ([None, *CONTENTS[1:]], LABELS, None, "row 0: there is no image"),
        (CONTENTS, [0.5] * 20, None, "a column of labels, got img, label"),
    ],
)
def test_bad_rows_are_named(
    tmp_path: Path, contents: list[Any], classes: list[Any], names: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        layouts.whole(load_data(layouts.parquet(tmp_path / "a.parquet", contents, classes, names)))


def test_missing_and_ambiguous_files_are_named(tmp_path: Path) -> None:
    layouts.parquet(tmp_path / "a" / "train-00001-of-00002.parquet", CONTENTS, LABELS)
    with pytest.raises(DataError, match=r"file 00000 of 00002 .* is missing"):
        load_data(tmp_path)
    layouts.parquet(tmp_path / "b" / "train-00000-of-00002.parquet", CONTENTS, LABELS)
    with pytest.raises(DataError, match="in one folder"):
        load_data(tmp_path)


def test_splits_without_a_train_split_must_be_chosen(tmp_path: Path) -> None:
    for name in ("north", "south"):
        layouts.parquet(tmp_path / f"{name}.parquet", CONTENTS, LABELS)
    with pytest.raises(DataError, match="--split north"):
        load_data(tmp_path)
    assert len(load_data(tmp_path, split="south").evaluate) == 6
    with pytest.raises(SpecError, match="north, south"):
        load_data(tmp_path, split="test")


def test_wrong_magic(tmp_path: Path) -> None:
    path = layouts.write(tmp_path / "a.parquet", b"CSV,1")
    with pytest.raises(DataError, match=r"must be a parquet file.*got b'CSV,'"):
        load_data(path)


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = layouts.parquet(tmp_path / "a.parquet", CONTENTS, LABELS)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pyarrow.*pip install 'nppr\[parquet\]'"):
        load_data(path)


hub = pytest.mark.filterwarnings("ignore")
"""Marks tests of `datasets`, which warns of its own dependencies."""


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library, offline and with a cache of its own."""
    datasets = pytest.importorskip("datasets", reason="the extra hf is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return datasets


@hub
@pytest.mark.usefixtures("datasets")
def test_hub_a_local_folder_of_parquet_files(tmp_path: Path) -> None:
    root = tmp_path / "pets"
    train, test = layouts.pixels(10, side=6), layouts.pixels(4, side=6, seed=1)
    for name, images in (("train", train), ("test", test)):
        contents = [layouts.encode(image) for image in images]
        layouts.parquet(root / f"{name}.parquet", contents, [0, 1] * (len(images) // 2))
    data = load_data(f"hf:{root}")
    assert data.class_names == ("cat", "dog")
    assert np.array_equal(layouts.learned(data)[0], train)
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), test)


@hub
@pytest.mark.usefixtures("datasets")
def test_hub_a_local_folder_of_images(tmp_path: Path) -> None:
    images = layouts.pixels(20, side=6)
    layouts.image_folder(tmp_path / "pets" / "train", images, ["cat", "dog"])
    data = load_data(f"hf:{tmp_path / 'pets'}", resize=3)
    assert data.class_names == ("cat", "dog")
    assert layouts.whole(data)["evaluate"].shape == (6, 3, 3, 3)


@hub
def test_hub_a_folder_that_datasets_saved(tmp_path: Path, datasets: Any) -> None:
    path = layouts.parquet(
        tmp_path / "a.parquet", [layouts.encode(x) for x in layouts.pixels(10, side=4)], [0, 1] * 5
    )
    saved = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    saved.save_to_disk(str(tmp_path / "saved"))
    data = load_data(f"hf:{tmp_path / 'saved'}")
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [5, 2, 3]
    layouts.whole(data)


@hub
@pytest.mark.usefixtures("datasets")
def test_hub_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"not found: hf:.*nothing.* Give a folder, or the"
    ) as caught:
        load_data(f"hf:{tmp_path / 'nothing'}")
    assert "\n" not in str(caught.value)


@hub
@pytest.mark.usefixtures("datasets")
@pytest.mark.parametrize("place", ["absolute", "above", "link"])
def test_hub_rows_that_name_a_file_outside_the_folder_are_refused(
    tmp_path: Path, place: str
) -> None:
    secret = layouts.write(tmp_path / "secret" / "1.png", CONTENTS[0])
    root = tmp_path / "pets"
    root.mkdir()
    if place == "link":
        layouts.image_folder(root / "train", IMAGES, ["cat", "dog"])
        (root / "train" / "cat" / "link.png").symlink_to(secret)
    else:
        name = str(secret) if place == "absolute" else "../secret/1.png"
        with_paths(root / "train.parquet", [name] * 20)
    with pytest.raises(DataError, match=r"must stay in its folder .*pets"):
        layouts.whole(load_data(f"hf:{root}"))


@hub
def test_hub_rows_of_data_without_a_folder_name_no_files(tmp_path: Path, datasets: Any) -> None:
    layouts.write(tmp_path / "1.png", CONTENTS[0])
    path = with_paths(tmp_path / "a.parquet", [str(tmp_path / "1.png")] * 20)
    dataset = datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    images = arrow_tables._read_hub("someone/pets", "train", dataset).images
    with pytest.raises(DataError, match="row 0: this row names a file, but the data have no fold"):
        images.load(np.arange(1))


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
