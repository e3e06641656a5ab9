"""Pickles of others, read without running anything in them.

A pickle is a program. This one may build numbers, strings, lists, dictionaries and numpy arrays; every
other name in it is refused before it is called. Even numpy is not called by the pickle: stand-ins write
down what an array consists of, and the array is made here, once its parts fit together.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nppr.data.guard import reading, shown
from nppr.errors import DataError

__all__ = ["read_pickle", "text"]

NUMBERS = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"}
MEMO_OPCODES = {"PUT", "BINPUT", "LONG_BINPUT"}


def read_pickle(content: bytes, where: str) -> dict[str, Any]:
    """The dictionary that a pickle holds, its numpy arrays made."""
    with reading(where):
        _check_program(content)
        found = _Reader(content, where).load()
        if not isinstance(found, dict):
            raise TypeError(f"a dictionary was expected, got {type(found).__name__}")
        return {
            text(key): value.array() if isinstance(value, _Array) else value
            for key, value in found.items()
        }


def text(value: object) -> str:
    """A string that Python 2 may have written as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class _Type:
    """Stands in for `numpy.dtype`: its code, such as u1, and its byte order."""

    def __init__(self, code: object, *_: object) -> None:
        self.code = text(code).lstrip("|<>=")
        self.order = "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if text(state[1]) == ">" else "<"

    def number(self) -> np.dtype[Any]:
        if self.code not in NUMBERS:
            raise TypeError(f"an array of {self.code!r} was refused: only numbers are admitted")
        return np.dtype(self.order + self.code)


class _Array:
    """Stands in for `numpy.ndarray`: its shape, type, memory order and bytes."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        *_, self.shape, self.type, self.columns_first, self.content = state

    def array(self) -> NDArray[Any]:
        number = self.type.number()
        shape = tuple(int(side) for side in self.shape)
        if math.prod(shape) * number.itemsize != len(self.content):
            raise ValueError(f"an array {shape} does not have {len(self.content)} bytes")
        flat = np.frombuffer(self.content, dtype=number)
        return flat.reshape(shape, order="F" if self.columns_first else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(content: object, kind: object, shape: object, order: object) -> _Array:
    array = _Array()
    array.__setstate__((shape, kind, order == "F", content))
    return array


def _encode(characters: str, *_: object) -> bytes:
    return characters.encode("latin1")


def _names() -> dict[tuple[str, str], Callable[..., Any]]:
    names: dict[tuple[str, str], Callable[..., Any]] = {
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Type,
        ("_codecs", "encode"): _encode,  # how Python 3 writes bytes for Python 2
    }
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray", "_reconstruct"] = _reconstruct
        names[f"{core}.numeric", "_frombuffer"] = _from_buffer
    return names


class _Reader(pickle.Unpickler):
    def __init__(self, content: bytes, where: str) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.where = where

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _names()[module_name, global_name]
        except KeyError:
            raise DataError(
                f"`data` must hold arrays only: {self.where}: the pickle asks for"
                f" {shown([f'{module_name}.{global_name}'])}, which was refused and not run."
            ) from None


def _check_program(content: bytes) -> None:
    """Walk the pickle without running it: its sizes must fit and it must end where the file ends.

    A damaged number of a memo entry would otherwise make the unpickler take memory for all below it.
    """
    end = 0
    for opcode, argument, position in pickletools.genops(content):
        end = position or 0
        if opcode.name in MEMO_OPCODES and not 0 <= (argument or 0) <= len(content):
            raise ValueError("a memo entry is out of range")
    if end != len(content) - 1:
        raise ValueError("the pickle ends before the file does")
