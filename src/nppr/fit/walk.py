"""The walk through the nested families up to the one the assessor admits.

independent -> label, input -> joint, each child warm-started at its parent. Calls are shared out over
the stages by weight: noise that sees the input has most to learn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nppr.distributions import Dependency, Family
from nppr.fit.settings import FitSettings, Recipe

__all__ = ["Stage", "walk"]

SHARES = {
    Dependency.INDEPENDENT: {Dependency.INDEPENDENT: 1.0},
    Dependency.LABEL: {Dependency.INDEPENDENT: 1 / 2, Dependency.LABEL: 1 / 2},
    Dependency.INPUT: {Dependency.INDEPENDENT: 1 / 2, Dependency.INPUT: 1 / 2},
    Dependency.JOINT: {
        Dependency.INDEPENDENT: 1 / 3,
        Dependency.LABEL: 1 / 12,
        Dependency.INPUT: 1 / 3,
        Dependency.JOINT: 1 / 4,
    },
}


@dataclass(frozen=True)
class Stage:
    """One fit of the walk: a family, the stages it starts from, its recipe and its steps.

    `last` stages give a result; it is compared with the reference noises.
    """

    name: str
    family: Family
    parents: tuple[int, ...]
    recipe: Recipe
    steps: int
    last: bool = True


def walk(settings: FitSettings) -> tuple[Stage, ...]:
    """The stages of a search at its first floor."""
    family = settings.family.with_(floor=settings.floors[0])
    if not settings.walks:
        steps = max(1, settings.calls // settings.step_calls)
        return (Stage(family.dependency.value, family, (), settings.recipe, steps),)
    shares = SHARES[family.dependency]
    steps = max(len(shares), settings.calls // settings.step_calls)
    steps *= family.floor < 1  # rho = 1 is Uniform noise: nothing to fit
    split = _split(steps, shares)
    stages: list[Stage] = []
    for dependency in shares:
        own = family.with_(dependency=dependency)
        parents = _parents(stages, dependency)
        recipe = replace(settings.recipe, rate=settings.child_rate) if parents else settings.recipe
        last = dependency is family.dependency
        stages.append(Stage(dependency.value, own, parents, recipe, split[dependency], last))
    return tuple(stages)


def _split(steps: int, shares: dict[Dependency, float]) -> dict[Dependency, int]:
    """Steps of every stage by its share, at least one where there are any; they add up."""
    least = min(1, steps)
    split = {each: max(least, int(steps * share)) for each, share in shares.items()}
    while sum(split.values()) != steps:
        missing = {each: steps * share - split[each] for each, share in shares.items()}
        up = sum(split.values()) < steps
        chosen = (max if up else min)(missing, key=lambda each: missing[each])
        split[chosen] += 1 if up else -1
    return split


def _parents(stages: list[Stage], dependency: Dependency) -> tuple[int, ...]:
    """The largest families before that lie inside this one."""
    inside = [
        number
        for number, stage in enumerate(stages)
        if dependency.contains(stage.family.dependency)
    ]
    return tuple(
        number
        for number in inside
        if not any(
            other != number
            and stages[other].family.dependency.contains(stages[number].family.dependency)
            for other in inside
        )
    )
