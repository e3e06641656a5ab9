"""Memory that PyTorch frees stays with the process, where the C library lets us say so.

By default glibc hands large blocks back to the system at once and gets them again, page by page, for
the next layer: a tenth to a fifth of the time of a small network. Only programs of ours ask for this;
the library leaves the allocator of its host alone.
"""

from __future__ import annotations

import ctypes
import sys

__all__ = ["keep_freed_memory"]

TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
"""Numbers of the parameters in malloc.h."""

LARGEST = 2**30


def keep_freed_memory() -> bool:
    """Keep freed blocks of up to a gigabyte; whether that could be set."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    return bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, LARGEST))
