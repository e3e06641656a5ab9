"""Images in folders: one folder per class, optionally below one per split; and Tiny ImageNet.

    root/<class>/*                               one split
    root/train/<class>/*  root/test/<class>/*    splits named train, test, val, ...

Classes are numbered in the sorted order of their folders. Tiny ImageNet has validation images by
annotations; its classes are numbered in the sorted order of their WordNet numbers, as in readers of
image folders, so classifiers trained on the train folder keep their outputs.

    wnids.txt                        the classes, one WordNet number per line
    words.txt                        names of WordNet numbers; may be absent
    train/<wnid>/images/*.JPEG
    val/val_annotations.txt          file name, WordNet number and a box per line
    val/images/*.JPEG
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np

from nppr.data.data_formats import DataFormat, SplitReaders, find_folders
from nppr.data.file_trees import Files, reading
from nppr.data.image_sets import FileImages, is_image
from nppr.data.splits import HELD_OUT, ONLY_SPLIT, TRAIN, Labelled
from nppr.errors import DataError
from nppr.system.bounded import TEXT_LIMIT

Listing = list[tuple[str, str]]
"""Names of image files with their classes."""

ANNOTATIONS = "val/val_annotations.txt"


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


def _open_tiny_imagenet(files: Files) -> SplitReaders:
    wnids = sorted(_lines(files, "wnids.txt"))
    if len(set(wnids)) != len(wnids):
        raise DataError(f"`data` lists a class twice in {files.where('wnids.txt')}.")
    return {
        "train": lambda: _read_train(files, wnids),
        "val": lambda: _read_val(files, wnids),
    }


def _read_train(files: Files, wnids: list[str]) -> Labelled:
    names = _images(files, "train/")
    found = [name.split("/")[1] for name in names]
    labelled = _label(files, wnids, names, found, "train/")
    for missing in sorted(set(wnids) - set(found)):
        folder = files.where(f"train/{missing}/images/")
        raise DataError(f"`data` is incomplete: {folder} has no images of a class in wnids.txt.")
    return labelled


def _read_val(files: Files, wnids: list[str]) -> Labelled:
    where = files.where(ANNOTATIONS)
    rows = [line.split("\t") for line in _lines(files, ANNOTATIONS)]
    if not all(len(row) >= 2 for row in rows):
        raise DataError(f"`data` must have a file name and a class in every line of {where}.")
    names = [f"val/images/{row[0]}" for row in rows]
    labelled = _label(files, wnids, names, [row[1] for row in rows], ANNOTATIONS)
    present = set(_images(files, "val/images/"))
    for lacking in sorted(set(names) - present):
        raise DataError(f"`data` is incomplete: {files.where(lacking)} is missing.")
    for stray in sorted(present - set(names)):
        raise DataError(f"`data` is incomplete: {where} has no line for {files.where(stray)}.")
    return labelled


def _label(
    files: Files, wnids: list[str], names: list[str], found: list[str], origin: str
) -> Labelled:
    """Label the files of these names with the classes found for them in `origin`."""
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    for wnid in sorted(set(found) - numbers.keys()):
        where = files.where(origin)
        raise DataError(f"`data` must have its classes in wnids.txt, got {wnid!r} in {where}.")
    labels = np.array([numbers[wnid] for wnid in found], dtype=np.int64)
    return Labelled(FileImages(files, names), labels, _class_names(files, wnids))


def _images(files: Files, folder: str) -> list[str]:
    return [name for name in files.names if name.startswith(folder) and is_image(name)]


def _class_names(files: Files, wnids: list[str]) -> tuple[str, ...]:
    if "words.txt" not in files.names:
        return tuple(wnids)
    rows = (line.partition("\t") for line in _lines(files, "words.txt"))
    words = {wnid: name for wnid, tab, name in rows if tab}
    return tuple(words.get(wnid, wnid) for wnid in wnids)


def _lines(files: Files, name: str) -> list[str]:
    with reading(files.where(name)):
        lines = files.read(name, TEXT_LIMIT).decode().splitlines()
    return [line.strip() for line in lines if line.strip()]


TINY_IMAGENET = DataFormat(
    title="Tiny ImageNet",
    open_splits=_open_tiny_imagenet,
    find=lambda files: find_folders(files, lambda _, names: "wnids.txt" in names),
)
