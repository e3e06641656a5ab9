"""Ctrl-C that waits for the end of a step, so that what is saved is a state between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["Interrupt", "held_back"]


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
    its own, or one that ignores the signal, keeps its ways.
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
