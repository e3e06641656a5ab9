"""Trees of named files in a folder, a zip or a tar archive, read one at a time.

Names are relative, with forward slashes, and sorted, so a data set is recognised and read in the
same way for every kind of storage. Hidden files and files that macOS adds to archives are left out.
Every read is bounded, accepts regular files only and stays within the folder. Every error of a
decoder becomes a one-line `DataError`.
"""

from __future__ import annotations

import functools
import gzip
import importlib
import os
import re
import tarfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Self

from nppr.errors import DataError, NpprError
from nppr.system.bounded import (
    CHUNK_BYTES,
    CIFAR_ARCHIVE_LIMIT,
    CIFAR_PICKLE_LIMIT,
    Limit,
    OversizeError,
    open_regular,
    read_bounded,
    read_member,
    require_regular,
)

DAMAGED = "It is incomplete or damaged: download it again."
REASON_LENGTH = 200
GZIP_MAGIC = b"\x1f\x8b"
OPEN_ZIPS = 4
HIDDEN = re.compile(r"(^|/)(\.|__MACOSX)")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
"""Control characters, and bytes of a name that are not text."""

MOST_MEMBERS = 1000
"""CIFAR's tar archives have ten members; `tarfile` keeps all headers in memory."""

HEADERS = 1 << 16
"""Largest size in bytes of the headers of a tar member: `tarfile` reads names of any length at once."""


@dataclass(frozen=True)
class Files(ABC):
    """A tree of files below `prefix` of a folder or archive; names of folders end with a slash."""

    path: Path
    names: tuple[str, ...]
    prefix: str = ""

    @abstractmethod
    def read(self, name: str, limit: Limit) -> bytes:
        """Read one file; raise `DataError` if it is missing or larger than the limit."""

    @abstractmethod
    def stored_size(self, name: str) -> int:
        """Return the stored size of the file in bytes, compressed or not."""

    def where(self, name: str) -> str:
        """Return the name of the file for messages."""
        member = self.prefix + name
        return f"{self.path}: member {member}" if member else str(self.path)

    def below(self, prefix: str) -> Self:
        """Return the files whose names start with `prefix`, which is removed from their names."""
        names = tuple(
            name[len(prefix) :] for name in self.names if name.startswith(prefix) and name != prefix
        )
        return replace(self, names=names, prefix=self.prefix + prefix)


class FolderFiles(Files):
    """The files of a folder."""

    @classmethod
    def of(cls, path: Path) -> FolderFiles:
        """List all files of a folder; follow links to folders inside it, each folder once."""
        found: list[str] = []
        entered = {Path(os.path.realpath(path))}
        with reading(str(path)):
            for folder, children, files in os.walk(path, followlinks=True):
                inner = Path(folder).relative_to(path)
                found += [f"{(inner / child).as_posix()}/" for child in children]
                found += [(inner / file).as_posix() for file in files]
                children[:] = _to_enter(path, inner, children, entered)
        return cls(path, _visible(found))

    def read(self, name: str, limit: Limit) -> bytes:
        with reading(self.where(name)), open_regular(self.place(name)) as file:
            return read_bounded(file, limit)

    def stored_size(self, name: str) -> int:
        with reading(self.where(name)):
            return require_regular(self.place(name)).st_size

    def place(self, name: str) -> Path:
        """Return the path of a file, links resolved; raise `DataError` if it is outside the folder."""
        return place_inside(self.path, self.prefix + name, self.where(name))

    def where(self, name: str) -> str:
        return str(self.path / self.prefix / name)


class ZipFiles(Files):
    """The members of a zip archive, decompressed when they are read."""

    @classmethod
    def of(cls, path: Path) -> ZipFiles:
        """List all members of an archive."""
        check_magic(path, b"PK", "a zip archive")
        with reading(str(path)):
            return cls(path, _visible(_open_zip(path).namelist()))

    def read(self, name: str, limit: Limit) -> bytes:
        with reading(self.where(name)):
            archive = _open_zip(self.path)
            if self.prefix + name not in archive.NameToInfo:
                raise FileNotFoundError
            return read_member(archive, self.prefix + name, limit)

    def stored_size(self, name: str) -> int:
        with reading(self.where(name)):
            announced = _open_zip(self.path).getinfo(self.prefix + name).compress_size
            return min(announced, self.path.stat().st_size)


@dataclass(frozen=True)
class TarFiles(Files):
    """The members of a `.tar.gz`, read in one pass because it cannot be read out of order."""

    contents: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, wanted: Collection[str]) -> TarFiles:
        """Read the members whose file name is in `wanted`, and check the archive to its end."""
        check_magic(path, GZIP_MAGIC, "a gzip-compressed tar archive")
        contents: dict[str, bytes] = {}
        last = "the start"
        try:
            with _BoundedGzip(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
                for number, member in enumerate(archive):
                    last = f"member {member.name}"
                    if number >= MOST_MEMBERS:
                        raise OversizeError(
                            f"it has over {MOST_MEMBERS} members. Download it again."
                        )
                    if member.isfile() and PurePosixPath(member.name).name in wanted:
                        taken = sum(map(len, contents.values())) + member.size
                        CIFAR_ARCHIVE_LIMIT.require(taken, "the archive up to here")
                        contents[member.name.removeprefix("./")] = stream.extract(archive, member)
                    stream.left = HEADERS
                stream.finish()
        except Exception as error:  # only here is the failing member known
            with reading(f"{path}, at {last}"):
                raise error
        return cls(path, _visible(contents), contents=contents)

    def read(self, name: str, limit: Limit) -> bytes:
        with reading(self.where(name)):
            if self.prefix + name not in self.contents:
                raise FileNotFoundError
            content = self.contents[self.prefix + name]
            limit.require(len(content))
            return content

    def stored_size(self, name: str) -> int:
        return len(self.contents[self.prefix + name])


class _BoundedGzip(gzip.GzipFile):
    """A stream that fails if more than `left` bytes are requested."""

    left = HEADERS

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= self.left:
            raise OversizeError(f"its headers take over {HEADERS} bytes. Download it again.")
        content = super().read(size)
        self.left -= len(content)
        return content

    def extract(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
        CIFAR_PICKLE_LIMIT.require(member.size)
        self.left = CIFAR_PICKLE_LIMIT.size + HEADERS
        file = archive.extractfile(member)
        content = b"" if file is None else read_bounded(file, CIFAR_PICKLE_LIMIT)
        if len(content) != member.size:
            raise EOFError("the member ends early")
        return content

    def finish(self) -> None:
        """Read the rest without keeping it, to verify the checksum at the end."""
        self.left = CHUNK_BYTES
        while self.read(CHUNK_BYTES):
            self.left = CHUNK_BYTES


def _visible(names: Iterable[str]) -> tuple[str, ...]:
    names = sorted(names)
    for name in filter(UNPRINTABLE.search, names):
        raise DataError(f"`data` has a file whose name cannot be shown: {name!r}. Rename it.")
    return tuple(name for name in names if not HIDDEN.search(name))


def _to_enter(root: Path, inner: Path, children: list[str], entered: set[Path]) -> list[str]:
    """Return the folders that are neither hidden nor entered yet, and enter them; links come last."""
    found = []
    for child in sorted(children, key=lambda child: os.path.islink(root / inner / child)):
        name = (inner / child).as_posix()
        if HIDDEN.search(name):
            continue
        place = place_inside(root, name, str(root / name))
        if place not in entered:
            entered.add(place)
            found.append(child)
    return found


def place_inside(folder: Path, name: str, where: str) -> Path:
    """Return the path of a file that the data name, links resolved; raise `DataError` outside `folder`.

    Otherwise the author of the data could have any image of this machine copied into a report.
    """
    root = os.path.realpath(folder)
    place = Path(os.path.realpath(os.path.join(root, name)))
    if not place.is_relative_to(root):
        raise DataError(
            f"`data` must stay in its folder {folder}, but {where} leads to"
            f" {join_names([str(place)])}. Copy the file into that folder, or give a folder that"
            " contains both."
        )
    return place


def _open_zip(path: Path) -> zipfile.ZipFile:
    """Open an archive, and keep it open because reading its directory takes long."""
    status = require_regular(path)
    # A forked process must not share the file's position with its parent.
    return _kept_zip(path, status.st_mtime_ns, status.st_size, os.getpid())


@functools.lru_cache(maxsize=OPEN_ZIPS)
def _kept_zip(path: Path, modified: int, size: int, process: int) -> zipfile.ZipFile:  # noqa: ARG001
    return zipfile.ZipFile(path)


@contextmanager
def reading(where: str, advice: str = DAMAGED) -> Iterator[None]:
    """Turn every failure inside the block into a `DataError` that names `where`.

    Decoders of damaged files raise almost anything, so this catches everything. Errors of the
    operating system, such as a missing permission, are passed on without the advice.
    """
    try:
        yield
    except NpprError:
        raise
    except OversizeError as error:
        raise DataError(f"`data` is refused: {where}: {error}") from error
    except FileNotFoundError as error:
        named = str(error.filename or where)
        other = "" if named in where else f": no file {named}"
        raise DataError(f"`data` is incomplete: {where} is missing{other}.") from error
    except Exception as error:
        system = getattr(error, "strerror", None)
        if system is not None:
            raise DataError(f"`data` cannot be read: {where}: {system}.") from error
        reason = join_names([str(error)]).rstrip(".") or type(error).__name__
        raise DataError(f"`data` cannot be read: {where}: {reason}. {advice}") from error


def check_magic(path: Path, magic: bytes, kind: str) -> None:
    """Raise `DataError` unless the file starts with the bytes that identify its kind."""
    with reading(str(path)), open_regular(path) as file:
        start = file.read(len(magic))
    if start != magic:
        raise DataError(
            f"`data` must be {kind}, which starts with {magic!r}, got {start!r} in {path}."
        )


def join_names(names: Iterable[str]) -> str:
    """Join names from a file, which may be damaged, to one line of limited length."""
    return " ".join(", ".join(names).split())[:REASON_LENGTH]


def import_extra(module: str, extra: str) -> Any:
    """Import an optional module; raise a `DataError` that names the extra if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise DataError(
            f"`data` of this kind needs the package {package}, which cannot be imported."
            f" Install it: pip install 'nppr[{extra}]'"
        ) from error
