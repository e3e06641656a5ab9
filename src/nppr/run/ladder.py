"""The ladder of a run: the rung `per-input` below the learned ones, and how well each was searched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nppr.core.tally import Evaluate, Metric, Tally
from nppr.noise.structures import STRUCTURES
from nppr.report.model import Rung
from nppr.run.assessment_run import AssessmentRun, PlannedMeasurement
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search_record import SearchCurve
from nppr.search.search_settings import SearchSettings
from nppr.sources import Source
from nppr.sources.base import PASSES_PER_CALL
from nppr.sources.learned import Learned
from nppr.sources.per_input_noise import PerInputNoise

CHECKED_INPUTS = 100
"""Inputs on which the rung `per-input` is searched for again: with fewer calls, with another seed."""

SAME_PATTERN_DRAWS = 16

PER_INPUT_FALL = 0.05
"""Gain of the second half of the calls of the rung `per-input` that suggests a similar further gain."""


def make_per_input_noise(
    settings: SearchSettings, learned: Sequence[LearnedNoise]
) -> list[PerInputNoise]:
    """Make the rung `per-input` of every floor; it starts at the lowest learned rung there."""
    if not settings.per_input_calls or all(each.rung.is_fitted for each in settings.sets):
        return []
    lowest = {each.source.floor: each.source for each in learned if each.source.fit_seed is None}
    scores = settings.recipe.scores
    return [PerInputNoise(source, settings.per_input_calls, scores) for source in lowest.values()]


def describe_rungs(run: AssessmentRun, others: Sequence[Source]) -> list[Rung]:
    """Describe every rung that was measured; `others` are the sources that were not searched for."""
    rungs = []
    for each in run.learned:
        source, smaller = each.source, _plan_smaller_radius(run, each.source)
        if source.name not in run.tallies or source.fit_seed is not None:
            continue
        stages = each.record.search.stages
        last = stages[-1]
        steps = last.running_pr[-max(1, len(last.running_pr) // 10) :]
        seeds = [
            _value(run.tallies[other.source.name])
            for other in run.learned
            if other.source.name in run.tallies and other.source.admissible == source.admissible
        ]
        quality = {  # of the search, and so not of noise that was given
            "curve": last.curve,
            "fit": float(np.mean(steps)) if steps else None,
            "select_inputs": last.select_inputs,
        }
        found = _rung(source, run.tallies, others, sum(stage.fit_calls for stage in stages))
        rungs.append(
            found.model_copy(
                update={
                    **({} if each.record.given else quality),
                    "seeds": tuple(seeds),
                    "smaller_radius": _value(run.tally(smaller)) if smaller else None,
                }
            )
        )
    for noise in run.own:
        if noise.name in run.tallies:
            checked = _check(run, noise)
            found = _rung(noise, run.tallies, others, noise.calls)
            rungs.append(found.model_copy(update=checked))
    return rungs


def _rung(
    source: Source, tallies: Mapping[str, Tally[Evaluate]], others: Sequence[Source], calls: int
) -> Rung:
    """Describe a rung: its value, and the strongest other source that its set contains.

    Attacks on single inputs are the rung below `per-input`, not inside it, except in a box, whose laws
    come close to single parameters. The reference noises are white; all other sources may have any
    structure.
    """
    assert source.dependency is not None
    box = source.budget is not None and source.budget.transform is not None
    inside = {
        each.name: _value(tallies[each.name])
        for each in others
        if each.name in tallies
        and each.budget == source.budget
        and not source.floor
        and source.dependency.contains(each.sees)
        and STRUCTURES[source.structure].contains(each.structure)
        and (box or each.metric is Metric.PR or each.sees.is_fitted)
    }
    strongest = min(inside, key=lambda name: inside[name], default=None)
    return Rung(
        name=source.name,
        dependency=source.dependency,
        structure=source.structure,
        floor=source.floor or 0.0,
        value=_value(tallies[source.name]),
        calls=calls,
        strongest=strongest,
        strongest_value=None if strongest is None else inside[strongest],
    )


def _value(tally: Tally[Evaluate]) -> float:
    return float(tally.headline_rates.mean())


def plan_checks(run: AssessmentRun) -> list[PlannedMeasurement]:
    """Plan what describes the rungs, beside the measurements of the rungs themselves."""
    learned = [each.source for each in run.learned if each.source.fit_seed is None]
    smaller = [_plan_smaller_radius(run, source) for source in learned]
    checks = [each for noise in run.own for each in _plan_checks_of(run, noise)]
    return [*(each for each in smaller if each is not None), *checks]


def _plan_smaller_radius(run: AssessmentRun, source: Learned) -> PlannedMeasurement | None:
    """Plan the same pattern at (1 - rho) r without the Uniform part."""
    if not 0 < source.floor < 1 or source.budget.transform is not None:
        return None  # parameters are few: a smaller box is not a substitute for their randomness
    smaller = source.budget.at((1 - source.floor) * source.budget.radius)
    same = replace(source, budget=smaller, distribution=source.distribution.with_floor(0.0))
    draws = min(run.settings.draws or 1, SAME_PATTERN_DRAWS)
    inputs = len(run.data.evaluate)
    return run.plan(same, f"{source.name} at a smaller radius", inputs=inputs, draws=draws)


def _plan_checks_of(run: AssessmentRun, noise: PerInputNoise) -> list[PlannedMeasurement]:
    """Plan the rung `per-input` on some inputs: with half of the calls, and with another seed."""
    inputs = int(np.searchsorted(np.cumsum(run.clean_correct), CHECKED_INPUTS) + 1)
    inputs = min(inputs, len(run.clean_correct))
    if not run.clean_correct[:inputs].any():
        return []
    draws, seed = min(run.settings.draws or 1, SAME_PATTERN_DRAWS), run.settings.seed
    left = noise.steps // (2 * PASSES_PER_CALL if noise.scores else 2)
    fewer = replace(noise, calls=noise.calls - left)
    return [
        run.plan(fewer, f"{noise.name} with half of the calls", inputs=inputs, draws=draws),
        run.plan(
            noise, f"{noise.name} with another seed", inputs=inputs, draws=draws, seed=seed + 1
        ),
    ]


def _check(run: AssessmentRun, noise: PerInputNoise) -> dict[str, object]:
    """Measure the rung again on some inputs: with half of the calls, and with another seed."""
    planned = _plan_checks_of(run, noise)
    if not planned:
        return {}
    among = run.clean_correct[: planned[0].inputs]
    full = float(run.tallies[noise.name].rates[: len(among)][among].mean())
    half, again = (_value(run.tally(each)) for each in planned)
    return {
        "curve": SearchCurve(
            restarts=(full, again),
            rounds=(half, full),
            calls=noise.calls,
            flat=half - full <= PER_INPUT_FALL,
        ),
        "select_inputs": int(among.sum()),
    }
