"""What the measurements say about themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nppr.checks.masking import check_attacks
from nppr.checks.nesting import check_nesting
from nppr.flags import (
    ATTACK_PARTS,
    FEW_DRAWS,
    FEW_INPUTS,
    NEAR_CHANCE,
    NEARLY_DETERMINISTIC,
    ONE_COMPONENT,
    flag,
)
from nppr.report.schema import Flag, Result
from nppr.sources import AutoAttack
from nppr.statistics.estimates import accuracy
from nppr.types import Evaluate, Metric, PerturbationSource, Tally

__all__ = ["check_results"]

FEWEST_DRAWS = 10
"""With 10 right draws of 10 an input's own probability may still be 0.69 (95 %)."""

FEWEST_INPUTS = 30
"""With 30 inputs, half of them right, Clopper-Pearson goes 19 points to either side (95 %)."""

ONE_WEIGHT = 0.99
LEAST_SPREAD = 0.1
"""Standard deviation of a pixel over the radius; that of Uniform noise is 0.58."""


def check_results(
    results: Sequence[Result],
    tallies: Mapping[str, Tally[Evaluate]],
    sources: Sequence[PerturbationSource],
    distributions: Sequence[Mapping[str, Any]],
    clean: Tally[Evaluate],
    classes: int,
    confidence: float,
) -> tuple[Flag, ...]:
    """Flags of what was measured.

    `tallies` are by name of the source, of all `sources`, learned ones too; `distributions` are the
    entries of the report; `clean` is the tally without noise, at which an input is right or wrong.
    """
    return (
        *_check_clean(clean, classes, confidence),
        *_check_draws(results),
        *_check_parts(sources, classes),
        *check_attacks(sources, tallies),
        *check_nesting(sources, tallies, distributions),
        *_check_distributions(distributions),
    )


def _check_clean(clean: Tally[Evaluate], classes: int, confidence: float) -> Iterator[Flag]:
    """Too few right inputs, or no more than a guess would get.

    Near chance: the exact interval of the accuracy reaches down to 1 / classes, or the accuracy is
    below `1 / classes + min(0.5 / classes, 0.1)`.
    """
    right = int((clean.right == 1).sum())
    if right < FEWEST_INPUTS:
        yield flag(FEW_INPUTS, f"{right} inputs are right without noise")
    found, chance = accuracy(clean, confidence), 1 / classes
    if found.low <= chance or found.value < chance + min(0.5 * chance, 0.1):
        sure = f"{100 * found.low:.1f}-{100 * found.high:.1f}"
        share = f"accuracy {100 * found.value:.1f} % ({sure})"
        yield flag(NEAR_CHANCE, f"{share}, where guessing gives {100 * chance:.3g} %")


def _check_draws(results: Sequence[Result]) -> Iterator[Flag]:
    few = dict.fromkeys(
        row.source
        for row in results
        if row.metric in (Metric.PR, Metric.NPPR)
        and row.value is not None
        and row.draws < FEWEST_DRAWS
    )
    return (flag(FEW_DRAWS, source=source) for source in few)


def _check_parts(sources: Sequence[PerturbationSource], classes: int) -> Iterator[Flag]:
    """Attacks that were left out because there are too few classes for them."""
    for source in sources:
        if isinstance(source, AutoAttack) and source.left_out(classes):
            yield flag(
                ATTACK_PARTS, f"left out: {', '.join(source.left_out(classes))}", source.name
            )


def _check_distributions(distributions: Sequence[Mapping[str, Any]]) -> Iterator[Flag]:
    """What a learned distribution looks like; this takes nothing from its number."""
    for entry in distributions:
        look, name = entry["diagnostics"], entry["source"]
        if entry["family"]["components"] > 1 and look["max_weight"] > ONE_WEIGHT:
            found = f"largest of {entry['family']['components']} weights {look['max_weight']:.4f}"
            yield flag(ONE_COMPONENT, found, name)
        if look["realised_std"] < LEAST_SPREAD:
            found = f"standard deviation {look['realised_std']:.3f} of the radius"
            yield flag(NEARLY_DETERMINISTIC, found, name)
