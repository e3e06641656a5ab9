"""Hashes of everything that determines a node, so that a result is found again and never mixed up."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["ALGORITHM", "digest_of", "file_digest"]

ALGORITHM = {"train": 1, "clean": 1, "features": 1, "fit": 2, "measure": 1}
"""The version of what each kind of node computes: a change of it makes old results unused."""

CHUNK = 2**20


def digest_of(content: Any) -> str:
    """A hash of plain values; the order of keys does not matter.

    >>> digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """A hash of a file's bytes; a file that did not change is read once."""
    state = path.stat()
    return _of_bytes(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _of_bytes(path: Path, size: int, changed: int) -> str:  # noqa: ARG001
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
