"""Load a `Data` object from a name, a path, arrays or a `Dataset`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from nppr.core.task import Task
from nppr.data.array_data import from_arrays, load_digits
from nppr.data.data_formats import DataFormat, SplitReaders
from nppr.data.data_set import Data
from nppr.data.file_trees import Files, FolderFiles, TarFiles, ZipFiles, join_names
from nppr.data.image_sets import StoredImages, laid_out, resize_data
from nppr.data.layout import Layout, RangeSpec
from nppr.data.splits import Labelled, assemble, choose_splits
from nppr.errors import DataError, PluginError, SpecError, require_at_most
from nppr.formats import DATA_FORMATS, DEMO_DATA, prefix_of, require_data

DataSpec = (
    str
    | Path
    | Data
    | tuple[Tensor | ArrayLike, Tensor | ArrayLike]
    | Dataset[Any]
    | DataLoader[Any]
)

Found = tuple[DataFormat, Callable[[], SplitReaders]]
"""A format, and a function that opens the splits of a data set in that format."""

logger = logging.getLogger(__name__)

TAR_SUFFIXES = (".tar.gz", ".tgz")
SHOWN = 4
MOST_SIDE = 4_096
"""Largest side in pixels to which images can be resized."""


def load_data(
    spec: DataSpec,
    *,
    split: str | None = None,
    resize: int | None = None,
    input_range: RangeSpec | None = None,
    task: Task | None = None,
) -> Data:
    """Load data from a name, a file or folder, `hf:NAME`, a pair of arrays, a Dataset or `Data`.

    Of several splits, `split` names the one to evaluate. `resize` makes all images that many pixels
    high and wide. With an `input_range`, arrays may have any shape. A `task` judges the answers to
    a pair `(inputs, targets)`.

    >>> load_data("digits").classes
    10
    >>> load_data("digits", resize=16).evaluate.batch(np.arange(2))[0].shape
    torch.Size([2, 1, 16, 16])
    """
    if resize is not None and (not isinstance(resize, int) or resize is True or resize < 1):
        raise SpecError(
            f"`resize` must be a whole number of pixels >= 1, got {resize}. Example: 32"
        )
    arrays = isinstance(spec, tuple)
    if task is not None and not arrays:
        raise SpecError(
            "`task` must be given with a pair (inputs, targets), or to nppr.from_arrays, got"
            f" {type(spec).__name__}."
        )
    stored = isinstance(spec, str | Path) and spec != DEMO_DATA
    if input_range is not None and not (arrays or stored):
        raise _refused_range(spec if isinstance(spec, str) else type(spec).__name__)
    if input_range is not None and resize is not None:
        raise SpecError("`resize` must be left out with a range: it is for images in [0, 1].")
    require_at_most("resize", resize, MOST_SIDE)
    if isinstance(spec, str | Path) and stored:
        data = _load_stored(spec, split, resize, input_range)
    elif split is None:
        data = _load_object(spec, resize, input_range, task)
    else:
        raise SpecError(
            "`split` must not be given for digits, arrays, a Dataset or a Data object: their splits"
            f" are fixed, got {split!r}."
        )
    return data if split is None and resize is None else replace(data, split=split, resize=resize)


def _load_object(
    spec: DataSpec, resize: int | None, input_range: RangeSpec | None, task: Task | None
) -> Data:
    match spec:
        case str() | Path():
            return resize_data(load_digits(), resize)
        case Data():
            return resize_data(spec, resize)
        case Dataset() | DataLoader():
            from nppr.data.torch_datasets import from_dataset  # pillow is slow to import

            return from_dataset(spec, resize)
        case (images, labels):
            made = from_arrays(images, labels, input_range=input_range, task=task)
            return resize_data(made, resize)
    raise DataError(
        "`data` must be a name, a path, a pair (images, labels), a Dataset, a DataLoader or a Data"
        f" object, got {type(spec).__name__}."
    )


def _load_stored(
    spec: str | Path, split: str | None, resize: int | None, input_range: RangeSpec | None
) -> Data:
    """Load data from a name with a prefix, or from a file or folder."""
    require_data(spec)
    if (prefix := prefix_of(str(spec), DATA_FORMATS)) is not None:
        name, (form, opened) = str(spec), _find_name(prefix, str(spec), input_range)
    else:
        path = Path(os.path.expanduser(spec))  # `Path.expanduser` raises for unknown users
        path = path.absolute() if path.name == "" else path
        name = path.name
        form, opened = _find_path(path) if input_range is None else _find_arrays(path)
    with DATA_FORMATS.guarded(form):
        splits = opened()
        read = {own: splits[own]() for own in choose_splits(splits, split)}
    layout = None
    if input_range is not None:
        read, layout = _laid_out(read, input_range)
    data = replace(assemble(name, read, resize), layout=layout)
    _check_shapes(data)
    return data


def _find_name(prefix: str, spec: str, input_range: RangeSpec | None) -> Found:
    """Find data without a path, such as a data set of a hub."""
    form: DataFormat = DATA_FORMATS[prefix]
    if form.open_name is None:
        raise DataError(f"`data` must be a file or folder of {form.title}, got {spec!r}.")
    if input_range is not None:
        raise _refused_range(spec)
    return form, partial(form.open_name, spec.removeprefix(prefix))


def _find_arrays(path: Path) -> Found:
    """Find a file with arrays of any shape, whose range the user states."""
    for form in DATA_FORMATS.values():
        if form.open_arrays is not None and path.name.lower().endswith(form.suffixes):
            return form, partial(form.open_arrays, FolderFiles(path, ("",)))
    raise _refused_range(str(path))


def _refused_range(got: str) -> SpecError:
    suffixes = [
        each for form in DATA_FORMATS.values() if form.open_arrays for each in form.suffixes
    ]
    return SpecError(
        f"`range` must be given with arrays, in memory or in a {' or '.join(suffixes)}, whose numbers"
        f" it is the range of, got {got}."
    )


def _laid_out(
    splits: dict[str, Labelled], input_range: RangeSpec
) -> tuple[dict[str, Labelled], Layout]:
    """Return stored arrays with a stated range, and their common layout."""
    made, layouts = {}, dict[str, Layout]()
    for own, split in splits.items():
        assert isinstance(split.images, StoredImages)
        images, layouts[own] = laid_out(split.images.array, input_range, f"the {own} split")
        made[own] = replace(split, images=images)
    if len(set(layouts.values())) > 1:
        shapes = ", ".join(f"{each.shape} in {own}" for own, each in layouts.items())
        raise DataError(f"`data` must hold inputs of one shape, got {shapes}.")
    return made, next(iter(layouts.values()))


def _find_path(path: Path) -> Found:
    """Find the data set in a folder or file; its name or its files determine the format."""
    if path.is_dir():
        return _find_tree(FolderFiles.of(path))
    name = path.name.lower()
    if name.endswith(".zip"):
        files = ZipFiles.of(path)
        return _find_tree(files.below(_wrapper(files.names)))
    if name.endswith(TAR_SUFFIXES):
        members = frozenset[str]().union(*(each.members for each in DATA_FORMATS.values()))
        return _find_tree(TarFiles.of(path, members))
    for each in DATA_FORMATS.values():
        if name.endswith(each.suffixes):
            return each, partial(each.open_splits, FolderFiles(path, ("",)))
    suffixes = [suffix for each in DATA_FORMATS.values() for suffix in each.suffixes]
    raise DataError(
        f"`data` must be a folder or a file that ends with {', '.join(suffixes)}, .zip or .tar.gz,"
        f" got {path}. Of data in several files, give the folder."
    )


def _find_tree(files: Files) -> Found:
    formats = list(DATA_FORMATS.values())
    layouts = [each for each in formats if not each.is_fallback]
    found = [(each, folder) for each in layouts for folder in _find(each, files)]
    if len(found) > 1:
        places = ", ".join(files.where(folder) for _, folder in found)
        raise DataError(f"`data` must be one data set, got several: {places}. Give one of them.")
    others = [each for each in formats if each.is_fallback and not found]
    found = found or [(each, root) for each in others for root in _find(each, files)]
    for each, folder in found:
        return each, partial(each.open_splits, files.below(folder))
    titles = ", ".join(each.title for each in formats)
    names = join_names(files.names[:SHOWN]) or "no files that can be read"
    raise DataError(f"`data` must be one of: {titles}; got {names} in {files.path}.")


def _find(form: DataFormat, files: Files) -> Sequence[str]:
    """Find data sets of a format; if a package fails, warn and find none."""
    try:
        with DATA_FORMATS.guarded(form):
            return form.find(files)
    except PluginError as error:
        logger.warning("%s", error)
        return ()


def _wrapper(names: tuple[str, ...]) -> str:
    """Return the one folder that contains everything in an archive, or an empty string."""
    tops = {name.partition("/")[0] for name in names}
    top = f"{tops.pop()}/" if len(tops) == 1 else ""
    return top if any(name.startswith(top) for name in names) else ""


def _check_shapes(data: Data) -> None:
    """Raise `DataError` unless the first images of all splits have one shape."""
    shapes = {
        split.kind.name: tuple(split.batch(np.arange(1))[0].shape[1:])
        for split in data.splits
        if len(split)
    }
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{shape} in {split}" for split, shape in shapes.items())
        raise DataError(
            f"`data` must hold images of one shape, got {found}. Give a size for all: --resize 32."
        )
