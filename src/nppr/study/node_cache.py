"""Finished nodes on disk: CACHE/<hash>/ is the folder of a run, `node.json` is written last.

node.json     what determined the node, how long it took, and a hash of each of its files
other files   those of a run: report.json, distributions/, weights; while it is being made, also what
              it resumes from
"""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from nppr.errors import WriteError
from nppr.study.graph import Node
from nppr.study.resources import digest_of, file_digest
from nppr.system.records import write_whole

RECORD = "node.json"
LOG = "log.jsonl"
LOCK = "lock"


class FullCacheError(WriteError):
    """The disk of the cache is full: no node can be finished."""


class Finished(BaseModel):
    """What `node.json` holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    label: str
    seconds: FiniteFloat
    files: dict[str, str]
    checksum: str = ""

    def sealed(self) -> Finished:
        """The record with the checksum of itself."""
        return self.model_copy(
            update={"checksum": digest_of(self.model_dump(exclude={"checksum"}))}
        )


@dataclass(frozen=True)
class Found:
    """A node that was looked up; `damage` states why what is there cannot be used."""

    finished: Finished | None = None
    damage: str | None = None


@dataclass(frozen=True)
class NodeCache:
    """A folder of finished nodes, shared by all studies that name it."""

    path: Path

    def folder(self, hash_: str) -> Path:
        """Where a node keeps its files."""
        return self.path / hash_

    def look_up(self, node: Node) -> Found:
        """The record of a node, if its files are whole and are of this node."""
        folder = self.folder(node.hash)
        try:
            record = Finished.model_validate_json((folder / RECORD).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return Found()
        except (OSError, ValidationError) as error:
            reason = " ".join(str(error).split())[:80]
            return Found(damage=f"{RECORD} cannot be read ({reason})")
        if record != record.sealed() or record.key != node.hash:
            return Found(damage=f"{RECORD} does not match its hash")
        for name, known in record.files.items():
            if not (folder / name).is_file() or file_digest(folder / name) != known:
                return Found(damage=f"{name} does not match its hash")
        return Found(record)

    def finish(self, node: Node, files: Sequence[str], seconds: float) -> Finished:
        """Record that the node is done, then remove all but the files that were made.

        In this order a node that is killed between both is done.
        """
        folder = self.folder(node.hash)
        kept = {folder / name for name in (*files, RECORD)}
        kept |= {parent for path in kept for parent in path.parents}
        record = Finished(
            key=node.hash,
            label=node.label,
            seconds=seconds,
            files={name: file_digest(folder / name) for name in files},
        ).sealed()
        write_whole(folder / RECORD, record.model_dump_json(indent=2) + "\n")
        self._clear(folder, kept)
        return record

    def holds_files(self, node: Node) -> bool:
        """Whether an earlier attempt at a node left something."""
        return any(path.name != LOCK for path in self.folder(node.hash).iterdir())

    def clear(self, node: Node) -> None:
        """Remove what a node left."""
        self._clear(self.folder(node.hash), set())

    def _clear(self, folder: Path, kept: set[Path]) -> None:
        for path in folder.iterdir():
            if path.name == LOCK:
                continue
            if path.is_symlink() or not path.is_dir():
                if path not in kept:
                    path.unlink(missing_ok=True)
            elif path in kept:
                self._clear(path, kept)
            else:
                shutil.rmtree(path)

    def log(self, node: Node, event: str) -> None:
        """Add a line to the log of the cache: what was begun and done, and when."""
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
        """Keep other processes from doing the same node at the same time; a killed one lets go."""
        folder = self.folder(node.hash)
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK, is_singleton=True):
            yield


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one that caused it, is a disk without space."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False
