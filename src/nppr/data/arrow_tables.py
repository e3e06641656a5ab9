"""Arrow tables in the layout of Hugging Face image data: Parquet files, and data sets of the hub.

    train.parquet  test.parquet
    data/train-00000-of-00002.parquet  data/train-00001-of-00002.parquet  data/test-...
    train/0000.parquet  test/0000.parquet

A table has a column of images, encoded as `{bytes, path}` or as plain bytes, and a column of
labels. The schema's metadata name these columns and the classes; without metadata, the column types
decide. Encoded images of Parquet files stay in memory; the Arrow files of `datasets` are
memory-mapped. A row may name a file instead, which must be in the folder of the data.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nppr.data.data_formats import DataFormat, SplitReaders
from nppr.data.file_trees import (
    Files,
    FolderFiles,
    check_magic,
    import_extra,
    join_names,
    place_inside,
    reading,
)
from nppr.data.image_sets import EncodedImages
from nppr.data.parquet_files import read_columns
from nppr.data.splits import TRAIN, Labelled
from nppr.errors import DataError
from nppr.system.bounded import ENCODED_IMAGE_LIMIT, encoded_limit, open_regular, read_bounded

LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")
"""Names of the label column in order of preference, if several columns could hold the labels."""

SHARD = re.compile(r"(?P<split>.+?)(-(?P<number>\d{5})-of-(?P<total>\d{5}))?(-[0-9a-f]{16})?")
SAVED = ("dataset_dict.json", "dataset_info.json")
"""Files that only `save_to_disk` writes to the root of a folder."""

ADVICE = (
    "Give a folder, or the name of a data set of the hub that this machine can reach or has cached."
)


@dataclass(frozen=True, eq=False)
class ArrowImages(EncodedImages):
    """Encoded images of a column; if a row has only a path, that file is read.

    The file must be in `folder`; without a folder, rows must contain their images.
    """

    column: Sequence[Any]
    origin: str
    folder: Path | None

    def __len__(self) -> int:
        return len(self.column)

    def read(self, position: int) -> bytes:
        with reading(self.where(position)):
            row = self.column[position]
            row = row.as_py() if hasattr(row, "as_py") else row
            content = row["bytes"] if isinstance(row, dict) else row
            if content is None and isinstance(row, dict) and row.get("path"):
                if self.folder is None:
                    raise ValueError("this row names a file, but the data have no folder")
                place = place_inside(self.folder, row["path"], self.where(position))
                with open_regular(place) as file:
                    content = read_bounded(file, ENCODED_IMAGE_LIMIT)
            if content is None:
                raise ValueError("there is no image in this row")
            return bytes(content)

    def where(self, position: int) -> str:
        return f"{self.origin}: row {position}"


def open_parquet(files: Files) -> SplitReaders:
    """Open one Parquet file, or all Parquet files in a folder at any depth."""
    import_extra("pyarrow", "parquet")
    root = files.path
    shards: dict[str, list[Path]] = {}
    for path in map(root.joinpath, _parquets(files)) if root.is_dir() else [root]:
        shards.setdefault(_split_of(path), []).append(path)
    if root.is_dir():
        for split, paths in shards.items():
            _check_complete(split, paths)
    return {split: functools.partial(_read_parquet, root, split, shards[split]) for split in shards}


def _parquets(files: Files) -> list[str]:
    """Return the names of the Parquet files in a folder; those in archives cannot be read."""
    found = [name for name in files.names if name.endswith(".parquet")]
    return found if isinstance(files, FolderFiles) else []


def _split_of(path: Path) -> str:
    """Return the split of a file: its name or, if that is a number, the name of its folder."""
    match = SHARD.fullmatch(path.stem)
    split = match["split"] if match else path.stem
    return path.parent.name if split.isdigit() else split


def _check_complete(split: str, paths: list[Path]) -> None:
    """Raise `DataError` unless all files of a split are there, in one folder."""
    if len({path.parent for path in paths}) > 1:
        raise DataError(
            f"`data` must have the files of the {split} split in one folder, got {paths[0]} and"
            f" {paths[-1]}. Give the folder of one of them."
        )
    matches = [match for path in paths if (match := SHARD.fullmatch(path.stem)) and match["total"]]
    total = max((int(match["total"]) for match in matches), default=0)
    for missing in sorted(set(range(total)) - {int(match["number"]) for match in matches}):
        raise DataError(
            f"`data` is incomplete: file {missing:05d} of {total:05d} beside {paths[0]} is missing."
        )


def _read_parquet(root: Path, split: str, paths: list[Path]) -> Labelled:
    """Read the image and the label column of all files of a split."""
    parquet = import_extra("pyarrow.parquet", "parquet")
    folder = root if root.is_dir() else root.parent
    for path in paths:
        if root.is_dir():
            place_inside(root, str(path.relative_to(root)), str(path))
        check_magic(path, b"PAR1", "a parquet file")
    with reading(str(paths[0])):
        image, label, class_names = _find_columns(parquet.read_schema(paths[0]), str(root))
        limit = encoded_limit(sum(path.stat().st_size for path in paths))
    rows: list[Any] = []
    labels: list[Any] = []
    taken = 0
    for path in paths:
        with reading(str(path)):
            found, taken = read_columns(path, [image, label], limit, taken)
        rows += found[image]
        labels += found[label]
    images = ArrowImages(rows, f"{root.name}, {split} split", folder)
    return _label(images, labels, class_names)


PARQUET = DataFormat(
    title="parquet files with images",
    open_splits=open_parquet,
    find=lambda files: [""] if _parquets(files) else [],
    is_fallback=True,
    suffixes=(".parquet",),
)


def open_hub(name: str) -> SplitReaders:
    """Open a data set of the Hugging Face hub, its cache or a local folder, through `datasets`."""
    library = import_extra("datasets", "hf")
    saved = any((Path(name) / file).is_file() for file in SAVED)
    if Path(name).is_dir():
        files = FolderFiles.of(Path(name))
        for each in files.names:
            files.place(each)
    with reading(f"hf:{name}", ADVICE), _without_progress_bars(library):
        try:
            found = (library.load_from_disk if saved else library.load_dataset)(name)
        except FileNotFoundError as error:
            raise DataError(f"`data` was not found: hf:{name}. {ADVICE}") from error
        sets = dict(found) if isinstance(found, dict) else {str(found.split or TRAIN[0]): found}
    return {split: functools.partial(_read_hub, name, split, sets[split]) for split in sets}


def _read_hub(name: str, split: str, dataset: Any) -> Labelled:
    image, label, class_names = _find_columns(dataset.features.arrow_schema, f"hf:{name}")
    with reading(f"hf:{name}", ADVICE):
        table = dataset.with_format("arrow")[:]
    images = ArrowImages(table[image], f"hf:{name}, {split} split", _folder_of(name, dataset))
    with reading("the column of labels"):
        return _label(images, table[label].to_pylist(), class_names)


def _folder_of(name: str, dataset: Any) -> Path | None:
    """Return the folder of files that rows name: the local folder, or the cache of the hub."""
    if Path(name).is_dir():
        return Path(name)
    if dataset.info.builder_name == "imagefolder":
        return Path(import_extra("datasets", "hf").config.HF_CACHE_HOME)
    return None


@contextmanager
def _without_progress_bars(library: Any) -> Iterator[None]:
    """Turn off the progress bars of `datasets` temporarily."""
    enabled = not library.are_progress_bars_disabled()
    library.disable_progress_bars()
    try:
        yield
    finally:
        if enabled:
            library.enable_progress_bars()


def _find_columns(schema: Any, where: str) -> tuple[str, str, tuple[str, ...] | None]:
    """Find the image and the label column, and the names of the classes if they are known."""
    types = import_extra("pyarrow", "parquet").types
    features = _read_features(schema)

    def find(feature: str, fits: Callable[[Any], bool]) -> list[str]:
        marked = [name for name, kind in features.items() if kind.get("_type") == feature]
        return [
            name
            for name in marked or [field.name for field in schema if fits(field.type)]
            if name in schema.names
        ]

    images = find("Image", _holds_bytes)
    labels = find("ClassLabel", lambda kind: types.is_integer(kind) or types.is_string(kind))
    if not images or not labels:
        raise DataError(
            "`data` must have a column of encoded images and a column of labels,"
            f" got {join_names(schema.names) or 'no columns'} in {where}."
        )
    label = next((name for name in LABEL_NAMES if name in labels), labels[0])
    names = features.get(label, {}).get("names")
    known = tuple(str(name) for name in names) if isinstance(names, list) else None
    return images[0], label, known


def _read_features(schema: Any) -> dict[str, dict[str, Any]]:
    """Return the record of each column in the Hugging Face metadata; empty without metadata."""
    content = (schema.metadata or {}).get(b"huggingface")
    if content is None:
        return {}
    with reading("the Hugging Face metadata of the schema"):
        found = json.loads(content)["info"]["features"]
        return {field: kind for field, kind in found.items() if isinstance(kind, dict)}


def _holds_bytes(kind: Any) -> bool:
    types = import_extra("pyarrow", "parquet").types
    if types.is_struct(kind):
        return any(kind.field(number).name == "bytes" for number in range(kind.num_fields))
    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _label(images: ArrowImages, labels: list[Any], class_names: tuple[str, ...] | None) -> Labelled:
    if labels and all(isinstance(label, str) for label in labels):
        return Labelled(images, labels)
    if not all(type(label) is int and abs(label) < 2**62 for label in labels):
        raise DataError(
            "`labels` must be whole numbers or words in every row, got something else in"
            f" {images.origin}."
        )
    return Labelled(images, np.array(labels, dtype=np.int64), class_names)


HUGGING_FACE_HUB = DataFormat(title="a data set of the Hugging Face hub", open_name=open_hub)
