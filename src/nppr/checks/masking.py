"""Does anything break inputs that the attack by gradients left standing?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np

from nppr.budget import Budget
from nppr.flags import ATTACK_TOO_WEAK, GRADIENT_MASKING, flag
from nppr.report.schema import Flag
from nppr.types import BoolArray, Evaluate, Metric, PerturbationSource, Tally

__all__ = ["check_attacks"]

BY_GRADIENTS = ("pgd", "cw")
"""How the names of attacks begin that follow gradients and nothing else."""

WITHOUT_GRADIENTS = ("square",)
"""How the names of attacks begin that follow none."""

BY_MORE = ("autoattack", "universal", "weak-adversary", "stress")
"""How the names of sources begin that follow gradients in another way, or something else too."""

FEWEST = 3
"""Inputs that must be broken in spite of the attack: at the border of a ball some are by chance."""


def check_attacks(
    sources: Sequence[PerturbationSource], tallies: Mapping[str, Tally[Evaluate]]
) -> tuple[Flag, ...]:
    """Sources that break, in the same budget, inputs that no attack by gradients broke.

    Noise, and an attack without gradients, do so only where gradients mislead; learned noise where all
    attacks are too weak. One input is enough for learned noise: it has seen none of the evaluated ones.
    """
    return tuple(_found(sources, tallies))


def _found(
    sources: Sequence[PerturbationSource], tallies: Mapping[str, Tally[Evaluate]]
) -> Iterator[Flag]:
    measured = [source for source in sources if source.name in tallies]
    for source in measured:
        name = _flag_of(source)
        learned = source.metric is Metric.NPPR
        attacks = (*BY_GRADIENTS, "autoattack") if learned else BY_GRADIENTS
        standing = _standing(measured, tallies, source.budget, attacks)
        if name is None or standing is None:
            continue
        tally = tallies[source.name]
        broken = int((standing & ~tally.unbroken).sum())
        if broken >= (1 if learned else FEWEST):
            what = "a learned draw" if learned else source.name
            inputs = "1 input" if broken == 1 else f"{broken:,} inputs"
            which = "attack" if learned else "gradient attack"
            yield flag(name, f"{what} breaks {inputs} that no {which} broke", source.name)


def _standing(
    sources: Sequence[PerturbationSource],
    tallies: Mapping[str, Tally[Evaluate]],
    budget: Budget | None,
    names: tuple[str, ...],
) -> BoolArray | None:
    """Inputs right without noise that no attack of these names and budget broke; None without one."""
    attacks = [
        tallies[source.name]
        for source in sources
        if source.budget is not None
        and source.budget == budget
        and source.metric is Metric.AR
        and source.name.startswith(names)
    ]
    if not attacks:
        return None
    unbroken = reduce(np.logical_and, (tally.unbroken for tally in attacks))
    standing: BoolArray = attacks[0].clean_correct & unbroken
    return standing


def _flag_of(source: PerturbationSource) -> str | None:
    """What it says about the attack if this source breaks more; None if nothing."""
    if source.metric is Metric.NPPR:
        return ATTACK_TOO_WEAK
    if source.name.startswith(BY_MORE):
        return None
    if source.metric is Metric.PR or source.name.startswith(WITHOUT_GRADIENTS):
        return GRADIENT_MASKING
    return None
