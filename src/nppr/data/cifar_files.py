"""CIFAR-10 and CIFAR-100 in the layout of their Python versions, which are pickles.

A pickle is a program, but nothing in these is executed: they may build numbers, strings, lists,
dictionaries and numpy arrays, and every other name is refused before it is called. The pickle does
not even call numpy: placeholders record the shape, type and bytes of an array, which is created
here after a check that they agree.

Reference: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

from __future__ import annotations

import functools
import io
import math
import pickle
import pickletools
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nppr.core.tally import IntArray
from nppr.data.data_formats import DataFormat, SplitReaders, find_folders
from nppr.data.file_trees import Files, join_names, reading
from nppr.data.image_sets import StoredImages
from nppr.data.splits import Labelled
from nppr.errors import DataError
from nppr.system.bounded import CIFAR_PICKLE_LIMIT, OversizeError

SHAPE = (3, 32, 32)
NUMBER_TYPES = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"}
MEMO_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}
MOST_STEPS = 4_000_000
"""CIFAR's pickles have up to 400,000 steps. A step of two bytes can make an object of forty."""


@dataclass(frozen=True)
class CifarFiles:
    """The files of CIFAR-10 or CIFAR-100, and the keys of their contents."""

    meta: str
    class_names: str
    labels: str
    splits: Mapping[str, tuple[str, ...]]

    @property
    def members(self) -> frozenset[str]:
        """The names of all files."""
        return frozenset({self.meta}.union(*self.splits.values()))


CIFAR_10 = CifarFiles(
    meta="batches.meta",
    class_names="label_names",
    labels="labels",
    splits={
        "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test": ("test_batch",),
    },
)
CIFAR_100 = CifarFiles(
    meta="meta",
    class_names="fine_label_names",
    labels="fine_labels",
    splits={"train": ("train",), "test": ("test",)},
)


def _find_files(folder: str, names: Set[str]) -> CifarFiles | None:
    if names & {"batches.meta", "data_batch_1", "test_batch"}:
        return CIFAR_10
    if len(names & CIFAR_100.members) > 1 or folder.endswith("cifar-100-python/"):
        return CIFAR_100
    return None


def _open(files: Files) -> SplitReaders:
    """Open images `(3, 32, 32)`, kept as 8-bit pixels; CIFAR-100 has its 100 fine labels."""
    layout = _find_files(files.prefix, set(files.names)) or CIFAR_100
    return {split: functools.partial(_read_split, files, layout, split) for split in layout.splits}


def _read_split(files: Files, layout: CifarFiles, split: str) -> Labelled:
    where = files.where(layout.meta)
    meta = read_pickle(files.read(layout.meta, CIFAR_PICKLE_LIMIT), where)
    class_names = _field(meta, layout.class_names, list, where)
    batches = [_read_batch(files, member, layout.labels) for member in layout.splits[split]]
    pixels, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    return Labelled(StoredImages(pixels), labels, tuple(text(name) for name in class_names))


def _read_batch(files: Files, member: str, key: str) -> tuple[NDArray[np.uint8], IntArray]:
    """Return pixels `(N, 3, 32, 32)` and labels `(N,)` of one file."""
    where = files.where(member)
    batch = read_pickle(files.read(member, CIFAR_PICKLE_LIMIT), where)
    pixels = _field(batch, "data", np.ndarray, where)
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != math.prod(SHAPE):
        raise DataError(
            f"`data` must have 8-bit rows of 3072, got {pixels.dtype} {pixels.shape} in {where}."
        )
    labels = _field(batch, key, list | np.ndarray, where)
    labels = labels.ravel().tolist() if isinstance(labels, np.ndarray) else labels
    if not all(type(label) is int and abs(label) < 2**31 for label in labels):
        raise DataError(f"`labels` must be whole numbers, got something else in {where}.")
    if len(labels) != len(pixels):
        raise DataError(
            f"`data` must have a label for every image, got {len(pixels)} images and"
            f" {len(labels)} labels in {where}."
        )
    return pixels.reshape(-1, *SHAPE), np.array(labels, dtype=np.int64)


def _field(found: dict[str, Any], key: str, kind: Any, where: str) -> Any:
    if not isinstance(found.get(key), kind):
        raise DataError(
            f"`data` must have {key!r} in {where}, got {join_names(sorted(found)) or 'nothing'}."
        )
    return found[key]


CIFAR = DataFormat(
    title="CIFAR-10 or CIFAR-100 (python version)",
    open_splits=_open,
    find=lambda files: find_folders(files, lambda *found: _find_files(*found) is not None),
    members=CIFAR_10.members | CIFAR_100.members,
)


def read_pickle(content: bytes, where: str) -> dict[str, Any]:
    """Read the dictionary of a pickle, with its numpy arrays."""
    with reading(where):
        _check_program(content)
        found = _Unpickler(content, where).load()
        if not isinstance(found, dict):
            raise TypeError(f"a dictionary was expected, got {type(found).__name__}")
        return {
            text(key): value.make() if isinstance(value, _Array) else value
            for key, value in found.items()
        }


def text(value: object) -> str:
    """Return a string that Python 2 may have written as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class _Type:
    """Placeholder for `numpy.dtype`: its code, such as u1, and its byte order."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = text(code).lstrip("|<>=")
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if text(state[1]) == ">" else "<"

    def make(self) -> np.dtype[Any]:
        if self.code not in NUMBER_TYPES:
            raise TypeError(f"an array of {self.code!r} was refused: only numbers are admitted")
        return np.dtype(self.order + self.code)


class _Array:
    """Placeholder for `numpy.ndarray`: its shape, type, memory order and bytes."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *_, self.shape, self.type, self.columns_first, self.content = state

    def make(self) -> NDArray[Any]:
        kind = self.type.make()
        shape = tuple(int(side) for side in self.shape)
        if math.prod(shape) * kind.itemsize != len(self.content):
            raise ValueError(f"an array {shape} does not have {len(self.content)} bytes")
        flat = np.frombuffer(self.content, dtype=kind)
        return flat.reshape(shape, order="F" if self.columns_first else "C")


def _from_buffer(content: object, kind: object, shape: object, order: object) -> _Array:
    array = _Array()
    array.__setstate__((shape, kind, order == "F", content))
    return array


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): lambda characters, *_: characters.encode("latin1"),  # bytes of Python 2
}
for _core in ("numpy.core", "numpy._core"):
    _ADMITTED[f"{_core}.multiarray", "_reconstruct"] = lambda *_: _Array()
    _ADMITTED[f"{_core}.numeric", "_frombuffer"] = _from_buffer


class _Unpickler(pickle.Unpickler):
    def __init__(self, content: bytes, where: str) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.where = where

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise DataError(
                f"`data` must hold arrays only: {self.where}: the pickle asks for"
                f" {join_names([f'{module_name}.{global_name}'])}, which was refused and not run."
            ) from None


def _check_program(content: bytes) -> None:
    """Check, without running the pickle, that its sizes fit and that it ends at the end of the file.

    A damaged memo number would make the unpickler allocate memory for all numbers below it.
    """
    end = 0
    for step, (opcode, argument, position) in enumerate(pickletools.genops(content)):
        end = position or 0
        if step >= MOST_STEPS:
            raise OversizeError(f"it has more than {MOST_STEPS} steps. Download the data again.")
        if opcode.name in MEMO_OPCODES and not 0 <= (argument or 0) <= len(content):
            raise ValueError("a memo entry is out of range")
    if end != len(content) - 1:
        raise ValueError("the pickle ends before the file does")
