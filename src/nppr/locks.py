"""Locks: one process at a time works in a run folder, on a node of a study or on a training.

A lock is an empty file that the system keeps for a process; it lets go when the process ends, however
it ends. Who has held it removes it. Systems without such locks have none, and two processes then need
two folders.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]

_held: dict[str, int] = {}
"""Locks of this process: their files by path."""


def take(path: Path, *, wait: bool = False) -> bool:
    """Lock with a file; whether this process now has the lock. A link is never followed."""
    name = os.path.realpath(path.parent) + os.sep + path.name
    if fcntl is None or name in _held:
        return True
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(file)
            return False
        except OSError:  # a file system without locks
            os.close(file)
            return True
        if _is_at(file, path):
            _held[name] = file
            return True
        os.close(file)  # its holder has removed it meanwhile


def release(path: Path) -> None:
    """Let go of a lock, if this process has it."""
    file = _held.pop(os.path.realpath(path.parent) + os.sep + path.name, None)
    if file is None:
        return
    if _is_at(file, path):
        with contextlib.suppress(OSError):
            path.unlink()
    os.close(file)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for a lock, and hold it."""
    take(path, wait=True)
    try:
        yield
    finally:
        release(path)


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one at its path."""
    try:
        return os.path.samestat(os.fstat(file), path.lstat())
    except OSError:
        return False
