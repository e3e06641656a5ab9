"""Reading what others wrote: whatever a decoder raises becomes one clear line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nppr.errors import DataError, NpprError

__all__ = ["check_magic", "reading", "shown"]

DAMAGED = "It is incomplete or damaged: fetch it again."
REASON_LENGTH = 200


@contextmanager
def reading(where: str, advice: str = DAMAGED) -> Iterator[None]:
    """Turn every failure inside the block into a `DataError` that names `where`.

    Decoders of damaged files raise almost anything (zlib's own errors, `struct.error`, `IndexError`,
    `MemoryError`, ...), so this catches all of it. What the system says about a file, such as a missing
    permission, is passed on without the advice.
    """
    try:
        yield
    except NpprError:
        raise
    except FileNotFoundError as error:
        named = str(error.filename or where)
        other = "" if named in where else f": no file {named}"
        raise DataError(f"`data` is incomplete: {where} is missing{other}.") from error
    except Exception as error:
        said = getattr(error, "strerror", None)
        if said is not None:
            raise DataError(f"`data` cannot be read: {where}: {said}.") from error
        raise DataError(f"`data` cannot be read: {where}: {_reason(error)}. {advice}") from error


def check_magic(path: Path, magic: bytes, what: str) -> None:
    """Raise `DataError` unless the file starts with the bytes that say what it is."""
    with reading(str(path)), path.open("rb") as file:
        start = file.read(len(magic))
    if start != magic:
        raise DataError(
            f"`data` must be {what}, which starts with {magic!r}, got {start!r} in {path}."
        )


def shown(names: Iterable[str]) -> str:
    """Names from a file that may be damaged, as part of one line of bearable length."""
    return " ".join(", ".join(names).split())[:REASON_LENGTH]


def _reason(error: Exception) -> str:
    return shown([str(error)]).rstrip(".") or type(error).__name__
