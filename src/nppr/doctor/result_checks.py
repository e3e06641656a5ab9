"""Flags that follow from the measurements.

Attacks: does any source break inputs that the gradient attack did not? Nesting: is the worst noise
found at least as bad as other noise in the set? Two tallies of the same inputs are compared by the
differences d of their rates, one for each clean-correct input. The first is significantly higher if
`mean(d) > 1.645 std(d) / sqrt(n)`, the one-sided paired test at 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from nppr.core.tally import Estimate, Evaluate, Metric, Tally
from nppr.doctor.flags import (
    ATTACK_PARTS,
    ATTACK_TOO_WEAK,
    FEW_DRAWS,
    FEW_INPUTS,
    GRADIENT_MASKING,
    HEADLINE_MISSING,
    NEAR_CHANCE,
    NEARLY_DETERMINISTIC,
    NOTHING_MEASURED,
    NPPR_ABOVE_PARENT,
    NPPR_ABOVE_PR,
    ONE_COMPONENT,
    SEARCH_BEHIND,
    SEEDS_APART,
    SINGLE_ATTACK,
    STARVED,
    STILL_FALLING,
    flag,
)
from nppr.noise.family import Family
from nppr.report.model import Flag, Rung
from nppr.report.number import CLEAN, MERGED, Number
from nppr.report.printed_numbers import percent
from nppr.search.search_record import DistributionRecord, SearchCurve
from nppr.search.search_settings import SearchSettings
from nppr.sources import Guidance, Source
from nppr.statistics.estimates import estimate_accuracy

FEWEST_DRAWS_EACH = 10  # if all 10 are correct, an input's own probability may still be 0.69 (95 %)
FEWEST_CLEAN_CORRECT = 30  # half of them correct: a half-width of 19 points (95 %)
FEWEST_BROKEN = 3  # despite the attack: at the border of a ball, some inputs break by chance
ONE_WEIGHT = 0.99
LEAST_SPREAD = 0.1  # standard deviation of a pixel over the radius; Uniform noise has 0.58
FEWEST_JUDGED = 200  # clean-correct inputs that show a paired difference of 2 points
APART = 0.03  # between searches with different random numbers
_EVALUATED = "on the evaluate split"
CRITICAL = 1.645  # standard errors that a normal variable exceeds with a probability of 5 %


def check_results(
    numbers: Sequence[Number],
    tallies: Mapping[str, Tally[Evaluate]],
    sources: Sequence[Source],
    distributions: Sequence[DistributionRecord],
    clean: Tally[Evaluate],
    classes: int,
    confidence: float,
) -> tuple[Flag, ...]:
    """Return the flags that follow from the measurements; `sources` include learned ones."""
    few = dict.fromkeys(
        row.name
        for row in numbers
        if row.metric.is_drawn and row.value is not None and row.draws < FEWEST_DRAWS_EACH
    )
    return (
        *_check_clean(clean, classes, confidence),
        *_check_missing(numbers),
        *(flag(FEW_DRAWS, source=source) for source in few),
        *(
            flag(ATTACK_PARTS, f"left out: {', '.join(missing)}", source.name)
            for source in sources
            if (missing := source.missing_parts(classes))
        ),
        *_check_attacks(sources, tallies),
        *_check_number_of_attacks(numbers, sources, tallies),
        *_check_nesting(sources, tallies, distributions),
        *check_distributions(distributions),
    )


def _check_clean(clean: Tally[Evaluate], classes: int, confidence: float) -> Iterator[Flag]:
    """Yield flags for too few correct inputs, or for an accuracy near chance.

    Near chance: the exact interval of the accuracy reaches down to 1 / classes, or the accuracy is
    below `1 / classes + min(0.5 / classes, 0.1)`.
    """
    correct = int((clean.correct == 1).sum())
    if correct < FEWEST_CLEAN_CORRECT:
        yield flag(FEW_INPUTS, f"{correct} inputs are clean-correct")
    found = estimate_accuracy(clean, confidence)
    if classes > 1 and (found.low <= 1 / classes or is_guessing(clean, classes)):
        yield flag(NEAR_CHANCE, accuracy_beside_chance(found, classes))


def is_guessing(clean: Tally[Evaluate], classes: int) -> bool:
    """Whether the accuracy is hardly above chance, which is unknown with one class."""
    chance = 1 / classes
    value = float((clean.correct == 1).mean())
    return classes > 1 and value < chance + min(0.5 * chance, 0.1)


def accuracy_beside_chance(found: Estimate, classes: int) -> str:
    """Return an accuracy, its interval, and the accuracy of a guess in words."""
    sure = f"{percent(found.low, 'at-least')}-{percent(found.high, 'at-most')}"
    return f"accuracy {percent(found.value)} % ({sure}), while guessing gives {100 / classes:.3g} %"


def _check_missing(numbers: Sequence[Number]) -> Iterator[Flag]:
    """Yield flags for requested headline numbers that are missing: AR, PR, and NPPR of any set."""
    sources = [row for row in numbers if row.source != CLEAN]
    failed = [row for row in sources if row.value is None]
    if failed and len(failed) == len(sources):
        yield flag(NOTHING_MEASURED)
        return
    known = {row.metric for row in sources if row.value is not None}
    for row in failed:
        asked = row.metric in (Metric.AR, Metric.PR) and row.metric not in known
        if asked or (row.metric is Metric.NPPR and not row.is_repeated):
            yield flag(HEADLINE_MISSING, f"no {row.metric.value}", row.name)


def check_distributions(distributions: Sequence[DistributionRecord]) -> Iterator[Flag]:
    """Yield flags on the shape of learned noise; they do not limit its number."""
    for each in distributions:
        found, components = each.diagnostics, each.family.components
        own = each.search.settings.per_class  # a component per class is used alone by design
        if components > 1 and not own and found.max_weight > ONE_WEIGHT:
            largest = f"largest of {components} weights {found.max_weight:.4f}"
            yield flag(ONE_COMPONENT, largest, each.name)
        if found.realised_std < LEAST_SPREAD:
            spread = f"standard deviation {found.realised_std:.3f} of the size of the budget"
            yield flag(NEARLY_DETERMINISTIC, f"realised {spread}", each.name)


def _check_attacks(
    sources: Sequence[Source], tallies: Mapping[str, Tally[Evaluate]]
) -> Iterator[Flag]:
    """Yield flags for sources that break inputs that no gradient attack in the same budget broke.

    Noise, and an attack without gradients, do so only if gradients mislead; learned noise does so
    if all attacks are too weak. One input is enough for learned noise, which was fitted on other
    inputs. The rung `per-input` is searched for on the evaluated inputs, like an attack, and is
    part of the merged AR.
    """
    measured = [source for source in sources if source.name in tallies]
    for source in measured:
        learned = source.metric is Metric.NPPR and source.carries_over
        masked = source.metric in (Metric.PR, Metric.AR) and source.guidance is Guidance.NOTHING
        if source.budget is not None and source.budget.transform is not None:
            masked = False  # the margin of every classifier has many local maxima in a small box
        if not (learned or masked):
            continue
        attacks = [
            tallies[each.name].unbroken
            for each in measured
            if each.metric is Metric.AR
            and each.budget == source.budget
            and (learned or each.guidance is Guidance.GRADIENTS)
        ]
        if not attacks:
            continue
        tally = tallies[source.name]
        broken = int((tally.clean_correct & np.all(attacks, axis=0) & ~tally.unbroken).sum())
        if broken >= (1 if learned else FEWEST_BROKEN):
            what = "a learned draw" if learned else source.name
            inputs = "1 input" if broken == 1 else f"{broken:,} inputs"
            which = "attack" if learned else "gradient attack"
            name = ATTACK_TOO_WEAK if learned else GRADIENT_MASKING
            yield flag(name, f"{what} breaks {inputs} that no {which} broke", source.name)


def _check_number_of_attacks(
    numbers: Sequence[Number], sources: Sequence[Source], tallies: Mapping[str, Tally[Evaluate]]
) -> Iterator[Flag]:
    """Yield a flag if AR rests on one attack, without a second attack or the rung `per-input`."""
    searches = [
        each
        for each in sources
        if each.name in tallies
        and ((each.metric is Metric.AR and not each.sees.is_fitted) or not each.carries_over)
    ]
    if len(searches) == 1 and searches[0].metric is Metric.AR and not searches[0].is_thorough:
        yield flag(SINGLE_ATTACK, source=searches[0].name)
        if any(row.source == MERGED for row in numbers):
            yield flag(SINGLE_ATTACK, source=MERGED)


def check_ladder(
    ladder: Sequence[Rung],
    tallies: Mapping[str, Tally[Evaluate]],
    settings: Mapping[str, SearchSettings],
) -> Iterator[Flag]:
    """Yield flags for insufficient searches; `settings` has the settings of each rung's search."""
    for rung in ladder:
        asked = settings.get(rung.name)
        if asked is not None and asked.is_short:
            short = f"{asked.calls:,} calls where {asked.needed_calls:,} are needed"
            yield flag(STARVED, short, rung.name)
        elif asked is not None and rung.curve and rung.select_inputs < FEWEST_JUDGED:
            few = f"judged on {rung.select_inputs:,} inputs of the select split"
            yield flag(STARVED, f"{few} where {FEWEST_JUDGED} are needed", rung.name)
        if rung.curve and not rung.curve.flat and len(rung.curve.rounds) > 1:
            yield flag(STILL_FALLING, _describe_fall(rung, rung.curve), rung.name)
        if rung.spread is not None and rung.spread > APART and not rung.restarts_are_tries:
            apart = f"searches with other random numbers differ by {100 * rung.spread:.1f} points"
            yield flag(SEEDS_APART, f"{apart} on the evaluate split", rung.name)
        if rung.strongest is not None:
            points = _higher(tallies[rung.name], tallies[rung.strongest])
            if points:
                behind = f"{points} above {rung.strongest} {_EVALUATED}"
                yield flag(SEARCH_BEHIND, behind, rung.name)


def _describe_fall(rung: Rung, curve: SearchCurve) -> str:
    """State the values before and after the last calls, and on which inputs."""
    fitted = rung.dependency.is_fitted
    before, after = (f"{100 * value:.1f} %" for value in (min(curve.rounds[:-1]), curve.rounds[-1]))
    when = "before the last round" if fitted else "with half of the calls"
    inputs = (
        "the select split" if fitted else f"{rung.select_inputs:,} inputs of the evaluate split"
    )
    return f"{before} {when} and {after} at the maximum of {curve.calls:,} calls, on {inputs}"


def _check_nesting(
    sources: Sequence[Source],
    tallies: Mapping[str, Tally[Evaluate]],
    distributions: Sequence[DistributionRecord],
) -> Iterator[Flag]:
    """Yield flags for NPPR above the PR of a reference noise, or above NPPR of a set inside its own."""
    measured = {source.name: source for source in sources if source.name in tallies}
    families = {each.name: each.family for each in distributions}
    learned = [each for each in measured.values() if each.admissible]
    quoted = [each for each in learned if each.fit_seed is None]
    noises = [each for each in measured.values() if each.is_reference and each.name == each.kind]
    for child in quoted:
        if not child.floor:
            for noise in noises:
                points = _higher(tallies[child.name], tallies[noise.name])
                if noise.budget == child.budget and points:
                    above = f"{points} above the PR of {noise.name} {_EVALUATED}"
                    yield flag(NPPR_ABOVE_PR, above, child.name)
        for parent in learned:
            nested = _is_inside(parent, child, families) and parent.budget == child.budget
            points = _higher(tallies[child.name], tallies[parent.name]) if nested else None
            if points:
                above = f"{points} above {parent.name} {_EVALUATED}"
                yield flag(NPPR_ABOVE_PARENT, above, child.name)


def _is_inside(parent: Source, child: Source, families: Mapping[str, Family]) -> bool:
    """Whether the noise of the first set is also noise of the second, and both are not the same.

    Noise with a larger floor is also noise with a smaller one, if both are of one family.
    """
    inner, outer = parent.admissible, child.admissible
    if inner is None or outer is None or inner == outer or inner.floor < outer.floor:
        return False
    if inner.floor == outer.floor:
        return outer.contains(inner)
    family, own = families.get(parent.name), families.get(child.name)
    return own is not None and family == replace(own, floor=inner.floor)


def _higher(first: Tally[Evaluate], second: Tally[Evaluate]) -> str | None:
    """Return by how many points the first is higher, or None if that may be chance."""
    difference = first.headline_rates - second.headline_rates
    if len(difference) < 2:
        return None
    mean = float(difference.mean())
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference))
    return f"{100 * mean:.1f} percentage points" if mean > CRITICAL * error else None
