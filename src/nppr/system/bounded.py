"""Bounded reads: a small archive can unpack to more than fits in memory, and a FIFO never ends.

A directory or header may announce any size, so its announcement is checked first, and the read
itself stops one byte past the limit. Arrays have a limit on both size and ratio, because neither is
enough alone. Zeros pack 1000 to 1, so a ratio alone would refuse 50,000 blank CIFAR images in 150
kB. A size alone would refuse large files that hardly pack (photographs pack 3 to 1, drawings 20 to
1). PyTorch stores programs and state dicts without compression, so their limits are small.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
import zipfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import SupportsRead

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CHUNK_BYTES = MIB
ARRAYS, ENCODED, GROWTH = 2 * GIB, 256 * MIB, 32
"""Limits in bytes of the arrays or encoded images of a file, or GROWTH times its size if that is
more; at most 3/4 of the memory."""

PROGRAM, PROGRAM_GROWTH = 64 * MIB, 4
"""The same for the tensors of a program (.pt2) or state dict."""

_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # not every system has it


class OversizeError(Exception):
    """The content of a file exceeds its limit. The message ends with the fix."""


@dataclass(frozen=True)
class Limit:
    """The largest size of an object in bytes, its name, and the fix if it is larger."""

    size: int
    what: str
    fix: str

    def require(self, size: int, subject: str = "it") -> None:
        """Raise `OversizeError` if the size exceeds the limit."""
        if size > self.size:
            raise OversizeError(
                f"{subject} takes more than {_readable(self.size)}, the limit for {self.what}."
                f" {self.fix}"
            )


DOWNLOAD_AGAIN = "Download the data again from its authors."
TEXT_LIMIT = Limit(8 * MIB, "a text file", DOWNLOAD_AGAIN)  # words.txt of Tiny ImageNet has 2.6 MB
TOML_LIMIT = Limit(8 * MIB, "a policy or study", "Give a smaller file.")
CLASS_NAMES_LIMIT = Limit(16 * MIB, "class names", "Give a smaller file.")
COLUMNS_LIMIT = Limit(256 * MIB, "columns beside the data", "Keep only those that are slices.")
LABELS_LIMIT = Limit(64 * MIB, "labels", "Store one whole number per image.")
ENCODED_IMAGE_LIMIT = Limit(64 * MIB, "an encoded image", "Store it as JPEG or PNG, or remove it.")
CIFAR_PICKLE_LIMIT = Limit(256 * MIB, "a file of CIFAR", DOWNLOAD_AGAIN)  # the largest has 155 MB
CIFAR_ARCHIVE_LIMIT = Limit(GIB, "all files of CIFAR", DOWNLOAD_AGAIN)
PROGRAM_JSON_LIMIT = Limit(
    16 * MIB, "a description", "Export the network again with torch.export.save."
)
"""Parsed JSON takes 50 times its size in memory."""


def array_limit(packed: int) -> Limit:
    """Return the limit for the arrays of a file that takes `packed` bytes on disk."""
    return _memory_limit(ARRAYS, packed, "arrays", "Store them without compression (numpy.savez)")


def encoded_limit(packed: int) -> Limit:
    """Return the limit for the rows of a table of encoded images that takes `packed` bytes on disk."""
    return _memory_limit(ENCODED, packed, "images", "Encode them as JPEG or PNG")


def _memory_limit(least: int, packed: int, what: str, fix: str) -> Limit:
    allowed, usable = max(least, GROWTH * packed), _physical_memory() // 4 * 3
    if usable < allowed:
        return Limit(usable, f"{what} in the memory of this machine", "Store images in a folder.")
    fix = f"{fix}, or store them as images in a folder."
    return Limit(allowed, f"{what} in a file of {_readable(packed)}", fix)


def program_limit(packed: int, fix: str) -> Limit:
    """Return the limit for the tensors of a PyTorch file that takes `packed` bytes on disk."""
    size = max(PROGRAM, PROGRAM_GROWTH * packed)
    return Limit(size, f"tensors in a file of {_readable(packed)}", fix)


def read_up_to(stream: SupportsRead[bytes], most: int) -> bytes:
    """Return up to `most` bytes; memory grows with the bytes read, not with `most`."""
    buffer = io.BytesIO()  # its value is not copied, so a large array is in memory once
    while (left := most - buffer.tell()) > 0 and (chunk := stream.read(min(CHUNK_BYTES, left))):
        buffer.write(chunk)
    return buffer.getvalue()


def read_bounded(stream: SupportsRead[bytes], limit: Limit) -> bytes:
    """Read the rest of a stream; raise `OversizeError` if it exceeds the limit."""
    content = read_up_to(stream, limit.size + 1)
    limit.require(len(content))
    return content


def require_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Return the status of a regular file; raise `OSError` for anything else.

    A FIFO without a writer blocks for ever, and devices have no end.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        fifo, socket = stat.S_ISFIFO(status.st_mode), stat.S_ISSOCK(status.st_mode)
        kind = "a FIFO" if fifo else "a socket" if socket else "a device"
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", os.fspath(path))
    return status


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a regular file to read bytes without waiting; raise `OSError` for anything else."""
    require_regular(path)
    # If a FIFO replaces the file at this moment, opening it does not wait either.
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAITING))


def read_text(
    path: str | os.PathLike[str], limit: Limit | None = None, encoding: str = "utf-8"
) -> str:
    """Return the content of a text file that is a regular file and within the limit."""
    with open_regular(path) as file:
        return (file.read() if limit is None else read_bounded(file, limit)).decode(encoding)


def read_member(archive: zipfile.ZipFile, name: str, limit: Limit) -> bytes:
    """Return one member of a zip archive; both its announced and its real size are checked."""
    limit.require(archive.getinfo(name).file_size)
    with open_member(archive, name) as stream:
        return read_bounded(stream, limit)


def open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member as a stream whose reads are bounded.

    Only deflate stops at the requested size: `zipfile` unpacks all content of bzip2 or LZMA members
    at once, which may be gigabytes in a few kilobytes.
    """
    if archive.getinfo(name).compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise OversizeError("it is not compressed with deflate. Repack the archive with deflate.")
    return archive.open(name)


def read_unpacked_size(file: str | os.PathLike[str] | IO[bytes]) -> int:
    """Return the total size that the members of a zip archive announce.

    Neither `zipfile` nor PyTorch reads more of a member than that, even if it contains more.
    """
    with zipfile.ZipFile(file) as archive:
        return sum(member.file_size for member in archive.infolist())


def _readable(size: int) -> str:
    unit, name = (GIB, "GiB") if size >= GIB else (MIB, "MiB") if size >= MIB else (KIB, "KiB")
    return f"{size / unit:.3g} {name}"


def _physical_memory() -> int:
    """Return the machine's memory in bytes, or no limit if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize
