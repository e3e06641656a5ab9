"""An image folder: one folder per class, optionally below one folder per split.

    root/<class>/*                               one split
    root/train/<class>/*  root/test/<class>/*    splits named train, test, val, ...

Classes are numbered in the sorted order of their folders.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from nppr.data.data_formats import DataFormat, SplitReaders
from nppr.data.file_trees import Files
from nppr.data.image_sets import FileImages, is_image
from nppr.data.splits import HELD_OUT, ONLY_SPLIT, TRAIN, Labelled
from nppr.errors import DataError

Listing = list[tuple[str, str]]
"""Names of image files with their classes."""


def _open(files: Files) -> SplitReaders:
    """Open images at all depths below class folders; a class folder without images is an error."""
    listings = _list_splits(files.names)
    classes = {class_name for listing in listings.values() for _, class_name in listing}
    _check_folders(files, listings)
    if len(classes) < 2:
        raise DataError(
            "`data` must have a folder of images for each of at least 2 classes,"
            f" got {', '.join(classes) or 'none'} in {files.where('')}."
        )
    return {
        split: functools.partial(
            Labelled,
            FileImages(files, [name for name, _ in listing]),
            [class_name for _, class_name in listing],
            tuple(sorted(classes)),
        )
        for split, listing in listings.items()
    }


def _list_splits(names: Iterable[str]) -> dict[str, Listing]:
    """Return the images of each split; names of split folders determine the layout."""
    paths = [(name, name.split("/")) for name in names if is_image(name)]
    if not any(len(path) > 2 and path[0] in TRAIN + HELD_OUT for _, path in paths):
        return {ONLY_SPLIT: [(name, path[0]) for name, path in paths if len(path) > 1]}
    listings: dict[str, Listing] = {}
    for name, path in paths:
        if len(path) > 2:
            listings.setdefault(path[0], []).append((name, path[1]))
    return listings


def _check_folders(files: Files, listings: dict[str, Listing]) -> None:
    """Raise `DataError` for a class folder without images."""
    depth = 1 if listings.keys() == {ONLY_SPLIT} else 2
    filled = {split: {class_name for _, class_name in listings[split]} for split in listings}
    for folder in (name for name in files.names if name.endswith("/") and name.count("/") == depth):
        *outer, class_name, _ = folder.split("/")
        split = outer[0] if outer else ONLY_SPLIT
        if split in filled and class_name not in filled[split]:
            raise DataError(
                f"`data` must have images in every class folder, got none in {files.where(folder)}."
            )


IMAGE_FOLDER = DataFormat(
    title="a folder of images per class",
    open_splits=_open,
    find=lambda files: [""] if any(map(is_image, files.names)) else [],
    is_fallback=True,
)
