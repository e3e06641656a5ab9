"""Tiny ImageNet in its official layout: training images by folder, validation images by annotations.

    wnids.txt                        the classes, one WordNet number a line
    words.txt                        names of WordNet numbers; may be absent
    train/<wnid>/images/*.JPEG
    val/val_annotations.txt          file name, WordNet number and a box a line
    val/images/*.JPEG

Classes are numbered in the sorted order of their WordNet numbers, as readers of image folders do, so
that classifiers trained on the train folder keep their outputs.
"""

from __future__ import annotations

import numpy as np

from nppr.data.base import Data
from nppr.data.encoded import EncodedImages, FileBlobs, first_frame, is_image
from nppr.data.files import Files
from nppr.data.guard import reading
from nppr.data.parts import Labelled, assemble, choose_parts
from nppr.errors import DataError

__all__ = ["load_tiny_imagenet"]

Listing = tuple[list[str], list[int]]


def load_tiny_imagenet(files: Files, name: str, split: str | None, resize: int | None) -> Data:
    """The train part gives fit and select; the validation part is evaluated."""
    plan = choose_parts(("train", "val"), split)
    wnids = sorted(_lines(files, "wnids.txt"))
    numbers = {wnid: number for number, wnid in enumerate(wnids)}
    if len(numbers) != len(wnids):
        raise DataError(f"`data` lists a class twice in {files.where('wnids.txt')}.")
    readers = {"train": _train, "val": _val}
    listings = {own: readers[own](files, numbers) for own in plan.names}
    blobs = {own: FileBlobs(files, listing[0]) for own, listing in listings.items()}
    frame = first_frame(blobs[plan.names[0]], resize)
    parts = {
        own: Labelled(EncodedImages(blobs[own], frame), np.array(labels, dtype=np.int64))
        for own, (_, labels) in listings.items()
    }
    return assemble(name, plan, parts, _class_names(files, wnids))


def _train(files: Files, numbers: dict[str, int]) -> Listing:
    found = [name for name in files.names if name.startswith("train/") and is_image(name)]
    wnids = [name.split("/")[1] for name in found]
    _check_known(wnids, numbers, files.where("train/"))
    missing = sorted(numbers.keys() - set(wnids))
    if missing:
        folder = files.where(f"train/{missing[0]}/images/")
        raise DataError(f"`data` is incomplete: {folder} has no images of a class in wnids.txt.")
    return found, [numbers[wnid] for wnid in wnids]


def _val(files: Files, numbers: dict[str, int]) -> Listing:
    where = files.where("val/val_annotations.txt")
    rows = [line.split("\t") for line in _lines(files, "val/val_annotations.txt")]
    if not all(len(row) >= 2 for row in rows):
        raise DataError(f"`data` must have a file name and a class in every line of {where}.")
    _check_known([row[1] for row in rows], numbers, where)
    names = [f"val/images/{row[0]}" for row in rows]
    present = {name for name in files.names if name.startswith("val/images/") and is_image(name)}
    for lacking in sorted(set(names) - present):
        raise DataError(f"`data` is incomplete: {files.where(lacking)} is missing.")
    for stray in sorted(present - set(names)):
        raise DataError(f"`data` is incomplete: {where} has no line for {files.where(stray)}.")
    return names, [numbers[row[1]] for row in rows]


def _check_known(wnids: list[str], numbers: dict[str, int], where: str) -> None:
    for wnid in sorted(set(wnids) - numbers.keys()):
        raise DataError(f"`data` must have its classes in wnids.txt, got {wnid!r} in {where}.")


def _class_names(files: Files, wnids: list[str]) -> tuple[str, ...]:
    if "words.txt" not in files.names:
        return tuple(wnids)
    rows = (line.partition("\t") for line in _lines(files, "words.txt"))
    words = {wnid: name for wnid, tab, name in rows if tab}
    return tuple(words.get(wnid, wnid) for wnid in wnids)


def _lines(files: Files, name: str) -> list[str]:
    with reading(files.where(name)):
        lines = files.read(name).decode().splitlines()
    return [line.strip() for line in lines if line.strip()]
