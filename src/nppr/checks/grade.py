"""One letter for all flags of a run.

A  nothing that matters: no flags, or information only
B  notes: the numbers stand, with a restriction
C  a warning: some number is off in a known direction
D  serious: some number means another thing than it says
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nppr.flags import SEVERITY, Severity
from nppr.report.schema import Flag

__all__ = ["Grade", "grade"]

LETTERS = {Severity.SERIOUS: "D", Severity.WARNING: "C", Severity.NOTE: "B"}
"""From the worst on: the worst flag decides."""

WORDS = {
    Severity.SERIOUS: "a number means something else than it says",
    Severity.WARNING: "a number may be off in a known direction",
    Severity.NOTE: "the numbers stand, with notes",
}


@dataclass(frozen=True)
class Grade:
    """A letter from A to D, and the flags that decided."""

    letter: str
    reason: str


def grade(flags: Sequence[Flag]) -> Grade:
    """The grade of the worst flag.

    >>> grade([])
    Grade(letter='A', reason='no flag limits the numbers')
    """
    for severity, letter in LETTERS.items():
        deciding = dict.fromkeys(flag.id for flag in flags if SEVERITY[flag.id] is severity)
        if deciding:
            return Grade(letter, f"{WORDS[severity]} ({', '.join(deciding)})")
    return Grade("A", "no flag limits the numbers")
