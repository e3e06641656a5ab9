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


@contextmanager
def held_back() -> Iterator[Interrupt]:
    """Hold back the first Ctrl-C; a second one interrupts at once.

    Only Python's own handler is replaced, and only where signals arrive: a program with a handler of
    its own, or one that ignores the signal, keeps it.
    """
    interrupt = Interrupt()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupt
        return

    def hold(number: int, frame: FrameType | None) -> None:
        if interrupt.asked:
            signal.default_int_handler(number, frame)
        interrupt.asked = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def terminate_like_ctrl_c() -> Callable[[], bool]:
    """Let SIGTERM do what Ctrl-C does; the function that is returned states whether it came.

    A program that ignores the signal goes on ignoring it.
    """
    came: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, stop)
    return lambda: bool(came)


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
