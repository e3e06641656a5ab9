"""The names of formats on a command line."""

from __future__ import annotations

from collections.abc import Iterable

from nppr.errors import unknown

__all__ = ["formats_of"]


def formats_of(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Names of formats separated by commas, each once and in the order given."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    known = tuple(known)
    for name in names:
        if name not in known:
            raise unknown("format", name, known)
    return names
