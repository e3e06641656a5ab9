"""Process settings: delayed signals, retained memory, and output streams that do not fail."""

from __future__ import annotations

import codecs
import ctypes
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
"""Parameter numbers from malloc.h."""

LARGEST_THRESHOLD = 2**30

ASCII = {"≤": "<=", "≥": ">=", "±": "+-", "→": "->", "…": "..."}
"""Substitutes for characters that an encoding may lack; others become escapes such as \\u4e2d."""


@dataclass
class Interrupt:
    """Whether Ctrl-C was pressed while it was held back."""

    asked: bool = False

    def raise_if_asked(self) -> None:
        if self.asked:
            raise KeyboardInterrupt


class _Termination:
    """A handler of SIGTERM that does the same as Python's own handler of Ctrl-C."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.default_int_handler(number, frame)


@contextmanager
def hold_back_interrupts() -> Iterator[Interrupt]:
    """Hold back the first Ctrl-C or SIGTERM; a second one interrupts at once.

    Only Python's own handler of Ctrl-C and our handler of SIGTERM are replaced, and only in the
    main thread. Handlers of the host program stay, and so do ignored signals.
    """
    interrupt = Interrupt()
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    ours = {
        number: handler
        for number, handler in before.items()
        if handler is signal.default_int_handler or isinstance(handler, _Termination)
    }
    if threading.current_thread() is not threading.main_thread():
        ours = {}

    def hold(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if isinstance(handler, _Termination):
            handler.came = True
        if interrupt.asked:
            signal.default_int_handler(number, frame)
        interrupt.asked = True

    for number in ours:
        signal.signal(number, hold)
    try:
        yield interrupt
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


def terminate_like_ctrl_c() -> Callable[[], bool]:
    """Make SIGTERM interrupt the program like Ctrl-C; the returned function says whether it came.

    It also works in a background job of a script, which ignores Ctrl-C. A program that ignores
    SIGTERM continues to ignore it.
    """
    termination = _Termination()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, termination)
    return lambda: termination.came


class _BestEffort(io.TextIOWrapper):
    """Standard error that becomes silent if its device fails, such as a full disk."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            self._silence()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            self._silence()

    def _silence(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def make_streams_robust() -> None:
    """Keep the program alive if a character cannot be encoded or standard error cannot be written.

    Characters that an encoding lacks are spelled out. Messages on standard error may be lost;
    results on standard output may not.
    """
    codecs.register_error("nppr.ascii", _spelled_out)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="nppr.ascii")
    if isinstance(sys.stderr, io.TextIOWrapper):
        file = io.FileIO(sys.stderr.fileno(), "w", closefd=False)
        sys.stderr = _BestEffort(
            io.BufferedWriter(file), sys.stderr.encoding, "nppr.ascii", line_buffering=True
        )


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    """Return substitutes for the characters that could not be encoded, and where to continue."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    escaped = (each.encode("ascii", "backslashreplace").decode() for each in lacking)
    return "".join(map(ASCII.get, lacking, escaped)), error.end


def keep_freed_memory() -> bool:
    """Keep freed blocks of up to a gigabyte in the process; return whether that could be set.

    By default, glibc returns large blocks to the system at once and requests them again, page by
    page, for the next layer. This costs a tenth to a fifth of the time of a small network. Only the
    command line calls this; the library leaves the allocator of its host alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl lacks it
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_THRESHOLD)) and bool(
        mallopt(TRIM_THRESHOLD, LARGEST_THRESHOLD)
    )
