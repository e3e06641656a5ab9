"""Finished nodes on disk: CACHE/<hash>/ is the folder of a run, and `node.json` is written last.

node.json     hash of the node, its seconds, and a hash of each of its files
other files   files of the run: report.json, distributions/, weights; while the node is computed, also
              the state from which it resumes
"""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from nppr.errors import RunFolderError
from nppr.study.graph import Node
from nppr.study.resources import digest_of, file_digest
from nppr.system.records import shorten_error, write_whole

RECORD = "node.json"
LOG = "log.jsonl"
LOCK = "lock"


class FullCacheError(RunFolderError):
    """The disk of the cache is full: no node can be finished."""


class FinishedNode(BaseModel):
    """The content of `node.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    label: str
    seconds: FiniteFloat
    files: dict[str, str]
    checksum: str = ""

    def seal(self) -> FinishedNode:
        """Return the record with its own checksum."""
        checksum = digest_of(self.model_dump(exclude={"checksum"}))
        return self.model_copy(update={"checksum": checksum})


@dataclass(frozen=True)
class FoundNode:
    """The result of looking up a node; `damage` states why files that are there cannot be used."""

    finished: FinishedNode | None = None
    damage: str | None = None


@dataclass(frozen=True)
class NodeCache:
    """A folder of finished nodes, which studies can share."""

    path: Path

    def folder(self, hash_: str) -> Path:
        """Return the folder of a node."""
        return self.path / hash_

    def look_up(self, node: Node) -> FoundNode:
        """Return the record of a node if all its files are whole and belong to this node."""
        folder = self.folder(node.hash)
        try:
            record = FinishedNode.model_validate_json((folder / RECORD).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return FoundNode()
        except (OSError, ValidationError) as error:
            return FoundNode(damage=f"{RECORD} cannot be read ({shorten_error(error)[:80]})")
        if record != record.seal() or record.key != node.hash:
            return FoundNode(damage=f"{RECORD} does not match its hash")
        for name, known in record.files.items():
            if not (folder / name).is_file() or file_digest(folder / name) != known:
                return FoundNode(damage=f"{name} does not match its hash")
        return FoundNode(record)

    def finish(self, node: Node, files: Iterable[Path], seconds: float) -> FinishedNode:
        """Record the files of a finished node, then remove all others from its folder.

        A node that is killed between both steps is finished.
        """
        folder = self.folder(node.hash)
        digests = {str(path.relative_to(folder)): file_digest(path) for path in files}
        record = FinishedNode(
            key=node.hash, label=node.label, seconds=seconds, files=digests
        ).seal()
        write_whole(folder / RECORD, record.model_dump_json(indent=2) + "\n")
        kept = {folder / name for name in (*digests, RECORD)}
        _remove_all_but(kept | {parent for path in kept for parent in path.parents}, folder)
        return record

    def holds_files(self, node: Node) -> bool:
        """Return whether an earlier attempt at a node left files."""
        return any(path.name != LOCK for path in self.folder(node.hash).iterdir())

    def clear(self, node: Node) -> None:
        """Remove the files of a node."""
        _remove_all_but(set(), self.folder(node.hash))

    def log(self, node: Node, event: str) -> None:
        """Add a line to the log of the cache: a node begins or is done."""
        self.path.mkdir(parents=True, exist_ok=True)
        entry = {
            "event": event,
            "hash": node.hash,
            "label": node.label,
            "process": getpid(),
            "time": round(time.time(), 3),
        }
        with (self.path / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, sort_keys=True) + "\n")

    @contextmanager
    def locked(self, node: Node) -> Iterator[None]:
        """Keep other processes from computing the node; the lock of a killed process is released."""
        folder = self.folder(node.hash)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, is_singleton=True):
            yield


def is_full_disk(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is a disk without space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False


def _remove_all_but(kept: set[Path], folder: Path) -> None:
    """Remove everything in a folder but these paths and the lock; a link is removed, not followed."""
    for path in folder.iterdir():
        if path.name == LOCK:
            continue
        if path.is_symlink() or not path.is_dir():
            if path not in kept:
                path.unlink(missing_ok=True)
        elif path in kept:
            _remove_all_but(kept, path)
        else:
            shutil.rmtree(path)
