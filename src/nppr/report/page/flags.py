"""Flags and grade: what is known that limits the numbers."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from nppr.report.page.shell import rendered
from nppr.report.schema import Report

__all__ = ["GRADES", "Raised", "flags_and_grade", "raised_of"]

GRADES = {
    "A": "nothing is known that limits the numbers",
    "B": "the numbers stand, with the restriction that the notes name",
    "C": "some number is off, in a known direction",
    "D": "some number means something else than it says",
}
"""As in `docs/flags.md`."""


@dataclass(frozen=True)
class Raised:
    """A flag once: all messages and the sources it is about."""

    id: str
    messages: tuple[str, ...]
    sources: tuple[str, ...]


def flags_and_grade(report: Report) -> Markup:
    """The section's body."""
    return rendered("flags.html.j2", report=report, raised=raised_of(report), grades=GRADES)


def raised_of(report: Report) -> list[Raised]:
    """The flags of a report, each id once, in the order in which they were raised."""
    ids = dict.fromkeys(flag.id for flag in report.flags)
    found = []
    for name in ids:
        same = [flag for flag in report.flags if flag.id == name]
        messages = dict.fromkeys(flag.message for flag in same)
        sources = dict.fromkeys(flag.source for flag in same if flag.source)
        found.append(Raised(name, tuple(messages), tuple(sources)))
    return found
