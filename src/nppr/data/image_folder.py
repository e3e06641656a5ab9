"""An image folder: one folder per class, below a folder per part or not.

    root/<class>/*                               one part
    root/train/<class>/*  root/test/<class>/*    parts named train, test, val, ...

Classes are numbered in the sorted order of their folders.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from nppr.data.base import Data
from nppr.data.encoded import EncodedImages, FileBlobs, first_frame, is_image
from nppr.data.files import Files
from nppr.data.parts import HELD_OUT, TRAIN, Labelled, assemble, choose_parts
from nppr.errors import DataError

__all__ = ["load_image_folder"]

ONLY_PART = "all"


def load_image_folder(files: Files, name: str, split: str | None, resize: int | None) -> Data:
    """Images of all depths below a class folder; a class folder without images is an error."""
    tree = _tree(files.names)
    numbers = _classes(files, tree)
    plan = choose_parts(tree, split)
    blobs = {own: FileBlobs(files, [each for each, _ in tree[own]]) for own in plan.names}
    frame = first_frame(blobs[plan.names[0]], resize)
    parts = {
        own: Labelled(
            EncodedImages(blobs[own], frame),
            np.array([numbers[class_name] for _, class_name in tree[own]], dtype=np.int64),
        )
        for own in plan.names
    }
    return assemble(name, plan, parts, tuple(numbers))


def _tree(names: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """For each part, file names and their classes; names of part folders decide the layout."""
    paths = [(name, name.split("/")) for name in names if is_image(name)]
    if any(len(path) > 2 and path[0] in TRAIN + HELD_OUT for _, path in paths):
        tree: dict[str, list[tuple[str, str]]] = {}
        for name, path in paths:
            if len(path) > 2:
                tree.setdefault(path[0], []).append((name, path[1]))
        return tree
    return {ONLY_PART: [(name, path[0]) for name, path in paths if len(path) > 1]}


def _classes(files: Files, tree: dict[str, list[tuple[str, str]]]) -> dict[str, int]:
    """Numbers of the classes of all parts."""
    found = {class_name for part in tree.values() for _, class_name in part}
    depth = 1 if ONLY_PART in tree else 2
    folders = [name for name in files.names if name.endswith("/") and name.count("/") == depth]
    for folder in folders:
        part = ONLY_PART if depth == 1 else folder.split("/")[0]
        class_name = folder.split("/")[-2]
        if part in tree and all(class_name != other for _, other in tree[part]):
            raise DataError(
                f"`data` must have images in every class folder, got none in {files.where(folder)}."
            )
    if len(found) < 2:
        raise DataError(
            "`data` must have a folder of images for each of at least 2 classes,"
            f" got {', '.join(found) or 'none'} in {files.where('')}."
        )
    return {class_name: number for number, class_name in enumerate(sorted(found))}
