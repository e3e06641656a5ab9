"""Finished nodes on disk: CACHE/<hash>/, with node.json written last.

node.json     what determined the node, its small results, and a hash of each of its files
other files   what the node made; while it is being made, also what it resumes from
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nppr.study.graph import Node
from nppr.study.hashing import digest_of, file_digest

__all__ = ["Cache", "Found", "is_full_disk"]

RECORD = "node.json"
LOG = "log.jsonl"


@dataclass(frozen=True)
class Found:
    """A result that was looked for; `damage` says why what is there cannot be used."""

    results: dict[str, Any] | None = None
    damage: str | None = None


@dataclass(frozen=True)
class Cache:
    """A folder of finished nodes, shared by all studies that name it."""

    path: Path

    def folder(self, hash_: str) -> Path:
        """Where a node keeps its files."""
        return self.path / hash_

    def look(self, node: Node) -> Found:
        """The results of a node, if they are whole and are of this node."""
        folder = self.folder(node.hash)
        try:
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return Found()
        except (OSError, ValueError) as error:
            return Found(damage=f"{RECORD} cannot be read ({' '.join(str(error).split())[:80]})")
        try:
            whole = record["checksum"] == digest_of({**record, "checksum": ""})
            if not whole or record["key"] != node.key:
                return Found(damage=f"{RECORD} does not match its hash")
            for name, known in record["files"].items():
                if not (folder / name).is_file() or file_digest(folder / name) != known:
                    return Found(damage=f"{name} does not match its hash")
            results: dict[str, Any] = record["results"]
        except (KeyError, TypeError, AttributeError, ValueError):
            return Found(damage=f"{RECORD} lacks an entry")
        return Found(results)

    def finish(
        self, node: Node, results: Mapping[str, Any], files: tuple[str, ...]
    ) -> dict[str, Any]:
        """Remove all but the files that were made, then say that the node is done.

        Gives the results as they are kept: JSON has no infinite numbers, they become None.
        """
        folder = self.folder(node.hash)
        for path in folder.iterdir():
            if path.name not in (*files, "lock"):
                _remove(path)
        kept: dict[str, Any] = json.loads(json.dumps(_finite(results), allow_nan=False))
        record = {
            "key": node.key,
            "label": node.label,
            "results": kept,
            "files": {name: file_digest(folder / name) for name in files},
            "checksum": "",
        }
        record["checksum"] = digest_of(record)
        partial = folder / (RECORD + ".partial")
        partial.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        os.replace(partial, folder / RECORD)
        return kept

    def clear(self, node: Node) -> None:
        """Remove what a node left."""
        folder = self.folder(node.hash)
        if folder.is_dir():
            for path in folder.iterdir():
                if path.name != "lock":
                    _remove(path)

    def log(self, node: Node, event: str) -> None:
        """Add a line to the log of the cache: what was begun and done, and when."""
        self.path.mkdir(parents=True, exist_ok=True)
        entry = {
            "event": event,
            "hash": node.hash,
            "label": node.label,
            "process": os.getpid(),
            "time": round(time.time(), 3),
        }
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, sort_keys=True) + "\n")

    @contextmanager
    def held(self, node: Node) -> Iterator[None]:
        """Keep other processes from doing the same node at the same time; a killed one lets go."""
        folder = self.folder(node.hash)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:  # no such locks on this system: two studies then need two caches
            yield
            return
        with (folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is a disk without space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def _finite(value: Any) -> Any:
    """Plain values in which numbers that are none, or have no end, are None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
