"""The process: Ctrl-C and SIGTERM wait for the end of a step, freed memory stays with the process."""

from __future__ import annotations

import ctypes
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

LARGEST = 2**30


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
def held_back() -> Iterator[Interrupt]:
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
    return bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, LARGEST))
