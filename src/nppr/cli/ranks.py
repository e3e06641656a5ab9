"""Commands under torchrun: which of them divide their work, and that one process speaks for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nppr import console
from nppr.errors import SpecError

__all__ = ["divided"]

COMMANDS = ("assess", "fit", "evaluate", "spectrum", "bound")


@contextmanager
def divided(arguments: Sequence[str]) -> Iterator[None]:
    """Join the other processes where torchrun has started this one; all but the first are silent."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # PyTorch is loaded when a command runs
        yield
        return
    from nppr.distributed import ranks

    with ranks() as world:
        if not world.is_first:
            console.out.quiet = console.err.quiet = True
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        if world.size > 1 and arguments and arguments[0] not in COMMANDS:
            raise SpecError(
                f"`torchrun` must start one of {', '.join(COMMANDS)}, got {arguments[0]!r}."
                f" Run nppr {arguments[0]} in one process."
            )
        yield
