"""The process: signals that wait for the end of a step, memory that stays, streams that never fail."""

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
"""Numbers of the parameters in malloc.h."""

LARGEST_THRESHOLD = 2**30

ASCII = {"≤": "<=", "≥": ">=", "±": "+-", "→": "->", "…": "..."}
"""Substitutes for characters that an encoding may lack; others become escapes such as \\u4e2d."""


@dataclass
class Interrupt:
    """Whether Ctrl-C was pressed."""

    asked: bool = False

    def raise_if_asked(self) -> None:
        """Raise `KeyboardInterrupt` if it was held back."""
        if self.asked:
            raise KeyboardInterrupt


class _Termination:
    """A handler of SIGTERM that does what Python's own handler of Ctrl-C does."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.default_int_handler(number, frame)


@contextmanager
def hold_back_interrupts() -> Iterator[Interrupt]:
    """Hold back the first Ctrl-C or SIGTERM; a second one interrupts at once.

    Only Python's own handler of Ctrl-C and ours of SIGTERM are replaced, and only in the main thread: a
    program with handlers of its own, or one that ignores a signal, keeps them.
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
    """Let SIGTERM interrupt the program, as Ctrl-C does; the function returned says whether it came.

    It also works in a background job of a script, which ignores Ctrl-C. A program that ignores SIGTERM
    goes on ignoring it.
    """
    termination = _Termination()
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, termination)
    return lambda: termination.came


class _BestEffort(io.TextIOWrapper):
    """Standard error that goes silent when its device takes nothing more, such as a full disk."""

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
        """Send what is buffered, and all that follows, to nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def make_streams_robust() -> None:
    """Let no character and no full device behind standard error end the program.

    Characters that an encoding lacks are spelled out. Messages on standard error may be lost; results
    on standard output may not.
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
    """Substitutes for the characters that could not be encoded, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    escaped = (each.encode("ascii", "backslashreplace").decode() for each in lacking)
    return "".join(map(ASCII.get, lacking, escaped)), error.end


def keep_freed_memory() -> bool:
    """Keep freed blocks of up to a gigabyte with the process; whether that could be set.

    By default glibc returns large blocks to the system at once and gets them again, page by page, for
    the next layer: a tenth to a fifth of the time of a small network. Only our own command asks for
    this; the library leaves the allocator of its host alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST_THRESHOLD)) and bool(
        mallopt(TRIM_THRESHOLD, LARGEST_THRESHOLD)
    )
