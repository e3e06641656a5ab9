"""Named files in a folder, in a zip or in memory, read one at a time.

Names are relative, with forward slashes, and sorted, so that a layout is recognised and read in the
same way wherever it lies. Hidden files and what macOS adds to archives are left out.
"""

from __future__ import annotations

import functools
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from nppr.data.guard import check_magic, reading
from nppr.errors import DataError

__all__ = ["Files", "FolderFiles", "MemoryFiles", "ZipFiles"]

ZIP_MAGIC = b"PK"
OPEN_ZIPS = 4
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and bytes of a name that are no text."""


class Files(Protocol):
    """A tree of files; names of folders end with a slash."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all files and folders below the root, sorted."""

    def read(self, name: str) -> bytes:
        """The content of one file."""

    def where(self, name: str) -> str:
        """How a message names the file."""

    def below(self, prefix: str) -> Files:
        """The files whose names start with `prefix`, named without it."""


@dataclass(frozen=True)
class FolderFiles:
    """Files of a folder."""

    root: Path
    names: tuple[str, ...]

    @classmethod
    def of(cls, root: Path) -> FolderFiles:
        """All files of a folder, symbolic links followed, each folder entered once."""
        found: list[str] = []
        entered: set[str] = set()
        with reading(str(root)):
            for folder, children, files in os.walk(root, followlinks=True):
                real = os.path.realpath(folder)
                if real in entered:
                    children.clear()
                    continue
                entered.add(real)
                inner = Path(folder).relative_to(root)
                found += [f"{(inner / child).as_posix()}/" for child in children]
                found += [(inner / file).as_posix() for file in files]
        return cls(root, _visible(found))

    def read(self, name: str) -> bytes:
        with reading(self.where(name)):
            return (self.root / name).read_bytes()

    def where(self, name: str) -> str:
        return str(self.root / name)

    def below(self, prefix: str) -> FolderFiles:
        return FolderFiles(self.root / prefix, _below(self.names, prefix))


@dataclass(frozen=True)
class ZipFiles:
    """Members of a zip archive, decompressed as they are read."""

    path: Path
    prefix: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, path: Path) -> ZipFiles:
        """All members of an archive."""
        check_magic(path, ZIP_MAGIC, "a zip archive")
        with reading(str(path)):
            return cls(path, "", _visible(_open_zip(path).namelist()))

    def read(self, name: str) -> bytes:
        with reading(self.where(name)):
            archive = _open_zip(self.path)
            if self.prefix + name not in archive.NameToInfo:
                raise FileNotFoundError
            return archive.read(self.prefix + name)

    def where(self, name: str) -> str:
        return _member(self.path, self.prefix + name)

    def below(self, prefix: str) -> ZipFiles:
        return ZipFiles(self.path, self.prefix + prefix, _below(self.names, prefix))


@dataclass(frozen=True)
class MemoryFiles:
    """Members of an archive that were read already."""

    path: Path
    prefix: str
    contents: Mapping[str, bytes]

    @property
    def names(self) -> tuple[str, ...]:
        return _below(_visible(self.contents), self.prefix)

    def read(self, name: str) -> bytes:
        content = self.contents.get(self.prefix + name)
        if content is None:
            raise DataError(f"`data` is incomplete: {self.where(name)} is missing.")
        return content

    def where(self, name: str) -> str:
        return _member(self.path, self.prefix + name)

    def below(self, prefix: str) -> MemoryFiles:
        return MemoryFiles(self.path, self.prefix + prefix, self.contents)


def _member(path: Path, name: str) -> str:
    return f"{path}: member {name}" if name else str(path)


def _visible(names: Iterable[str]) -> tuple[str, ...]:
    names = list(names)
    for name in filter(UNPRINTABLE.search, names):
        raise DataError(f"`data` has a file whose name cannot be shown: {name!r}. Rename it.")
    return tuple(
        sorted(
            name
            for name in names
            if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))
        )
    )


def _below(names: Iterable[str], prefix: str) -> tuple[str, ...]:
    return tuple(
        name[len(prefix) :] for name in names if name.startswith(prefix) and name != prefix
    )


def _open_zip(path: Path) -> zipfile.ZipFile:
    """An open archive, kept open because its directory is long to read.

    A forked process must not share the file's position with its parent, hence the process number.
    """
    return _kept_zip(path, path.stat().st_mtime_ns, path.stat().st_size, os.getpid())


@functools.lru_cache(maxsize=OPEN_ZIPS)
def _kept_zip(path: Path, modified: int, size: int, process: int) -> zipfile.ZipFile:  # noqa: ARG001
    return zipfile.ZipFile(path)
