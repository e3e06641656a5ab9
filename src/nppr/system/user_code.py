"""Calls of code that users provide: models, tasks, transformations, noise, data sets.

Such code may fail in any way. `sys.exit(0)` in a model must not end an assessment as if it had
succeeded, so exceptions that would end the process become ordinary errors here.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from contextlib import contextmanager


class ProcessEnded(RuntimeError):
    """User code raised an exception that ends the process, such as `SystemExit`."""


@contextmanager
def contain_exits() -> Iterator[None]:
    """Turn exceptions that are not an `Exception` into `ProcessEnded`; let Ctrl-C pass.

    >>> with contain_exits():
    ...     raise SystemExit(0)
    Traceback (most recent call last):
    nppr.system.user_code.ProcessEnded: it raised SystemExit: 0
    """
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        by_signal = isinstance(error, KeyboardInterrupt) and not _is_raised_by_code(error)
        if by_signal or isinstance(error.__context__, BrokenPipeError):  # nobody reads the console
            raise
        raise ProcessEnded(f"it raised {type(error).__name__}: {error}".rstrip(": ")) from error


def _is_raised_by_code(error: KeyboardInterrupt) -> bool:
    """Whether a `raise` statement outside this package raised the error, rather than a signal."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or str(last.tb_frame.f_globals.get("__name__")).startswith("nppr."):
        return False
    return last.tb_frame.f_code.co_code[last.tb_lasti] == dis.opmap["RAISE_VARARGS"]
