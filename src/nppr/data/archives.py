"""The members of a `.tar.gz`, in one pass: compressed archives cannot be read out of order."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from nppr.data.files import MemoryFiles
from nppr.data.guard import check_magic, reading
from nppr.errors import DataError

__all__ = ["read_tar"]

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20
MEMBER_LIMIT = 1 << 30
"""A larger member is refused before memory is taken for it: the header may be damaged."""


def read_tar(path: Path, wanted: Collection[str]) -> MemoryFiles:
    """The members whose last name is in `wanted`; the archive is read, and so checked, to its end."""
    check_magic(path, GZIP_MAGIC, "a gzip-compressed tar archive")
    contents: dict[str, bytes] = {}
    last = "the start"
    try:
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                last = f"member {member.name}"
                if member.isfile() and PurePosixPath(member.name).name in wanted:
                    contents[member.name.removeprefix("./")] = _content(archive, member)
            while stream.read(CHUNK):
                pass
    except Exception as error:  # only now is it known which member it was
        with reading(f"{path}, at {last}"):
            raise error
    return MemoryFiles(path, "", contents)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if member.size > MEMBER_LIMIT:
        raise DataError(f"`data` has a member of {member.size} bytes: {member.name} is damaged.")
    file = archive.extractfile(member)
    content = b"" if file is None else file.read()
    if len(content) != member.size:
        raise EOFError("the member ends early")
    return content
