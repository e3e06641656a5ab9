"""Is the worst noise found at least as bad as noise that was admitted anyway?

Two tallies of the same inputs are compared by the differences d of their rates, one for each input that
is right without noise: the first is higher beyond chance where `mean(d) > 1.645 std(d) / sqrt(n)`, the
one-sided paired test at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nppr.flags import NPPR_ABOVE_PARENT, NPPR_ABOVE_PR, flag
from nppr.report.schema import Flag
from nppr.types import Evaluate, PerturbationSource, Tally

__all__ = ["check_nesting"]

REFERENCES = ("gaussian", "uniform", "laplace")
"""Noises of scale 1, which NPPR is compared with."""

REPEATED = ":fit-seed="
"""In the names of fits that were repeated and not the lowest on select: nobody quotes them."""

CRITICAL = 1.645
"""Standard errors that a normal variable exceeds with a probability of 5 %."""


def check_nesting(
    sources: Sequence[PerturbationSource],
    tallies: Mapping[str, Tally[Evaluate]],
    distributions: Sequence[Mapping[str, Any]],
) -> tuple[Flag, ...]:
    """NPPR above the PR of a reference noise, or above NPPR with a larger floor, in the same budget."""
    measured = {source.name: source for source in sources if source.name in tallies}
    learned = [entry for entry in distributions if entry["source"] in measured]
    return (
        *_above_noise(learned, measured, tallies),
        *_above_floors(learned, measured, tallies),
    )


def _above_noise(
    learned: Sequence[Mapping[str, Any]],
    measured: Mapping[str, PerturbationSource],
    tallies: Mapping[str, Tally[Evaluate]],
) -> Iterator[Flag]:
    for name in (entry["source"] for entry in _quoted(learned) if entry["family"]["floor"] == 0):
        for noise in REFERENCES:
            if noise not in measured or measured[noise].budget != measured[name].budget:
                continue
            points = _higher(tallies[name], tallies[noise])
            if points is not None:
                yield flag(NPPR_ABOVE_PR, f"{points} above the PR of {noise}", name)


def _above_floors(
    learned: Sequence[Mapping[str, Any]],
    measured: Mapping[str, PerturbationSource],
    tallies: Mapping[str, Tally[Evaluate]],
) -> Iterator[Flag]:
    """Noise with a larger floor is also noise with a smaller one, in the same family."""
    for child in _quoted(learned):
        for parent in learned:
            name, other = child["source"], parent["source"]
            nested = (
                child["family"]["floor"] < parent["family"]["floor"]
                and {**child["family"], "floor": None} == {**parent["family"], "floor": None}
                and measured[name].budget == measured[other].budget
            )
            points = _higher(tallies[name], tallies[other]) if nested else None
            if points is not None:
                yield flag(NPPR_ABOVE_PARENT, f"{points} above {other}", name)


def _quoted(learned: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [entry for entry in learned if REPEATED not in entry["source"]]


def _higher(first: Tally[Evaluate], second: Tally[Evaluate]) -> str | None:
    """By how many points the first is higher, where it is so beyond chance."""
    difference = first.headline_rates - second.headline_rates
    if len(difference) < 2:
        return None
    mean = float(difference.mean())
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return f"{100 * mean:.1f} points" if mean > CRITICAL * error else None
