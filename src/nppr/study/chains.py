"""Chains of fits: which families a study fits, what each starts from, and how it is fitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from nppr.core.budget import Budget
from nppr.noise.family import Family
from nppr.noise.rungs import LADDER, Dependency
from nppr.search.search_settings import (
    SearchSettings,
    Stage,
    default_settings,
    first_of_walk,
    paper_settings,
    walk,
)
from nppr.study.study_file import FitEntry

PAPER_EPOCHS = 50


@dataclass(frozen=True, order=True)
class Member:
    """A family of a chain, in which all but these is the same.

    Noise that is searched for on every input on its own starts from what is fitted for the rung above.
    """

    floor: float
    components: int
    dependency: Dependency

    @property
    def fitted(self) -> Member:
        """The member whose fit this one is measured with."""
        return replace(self, dependency=self.dependency.fitted)


def inside(small: Member, large: Member) -> bool:
    """Whether every distribution of the first is one of the second, and they are not the same.

    >>> inside(Member(0, 3, Dependency.INPUT), Member(0, 7, Dependency.JOINT))
    True
    """
    return (
        small != large
        and small.floor == large.floor
        and small.components <= large.components
        and large.dependency.contains(small.dependency)
    )


def closed(wanted: Iterable[Member]) -> list[Member]:
    """The members asked for and those the search walks through, smaller families first.

    The walk starts at noise that depends on nothing and without a floor, and goes through label and
    input to joint.
    """
    found = set(wanted)
    found |= {Member(0.0, each.components, each.dependency) for each in found}
    found |= {
        Member(0.0, each.components, other)
        for each in list(found)
        for other in Dependency
        if each.floor == 0 and each.dependency.contains(other)
    }
    return sorted(found, key=lambda x: (x.floor, x.components, x.dependency.depth))


def nearest(member: Member, members: Iterable[Member]) -> list[Member]:
    """The largest members that lie inside this one; with a floor, the one without."""
    if member.floor:
        return [Member(0.0, member.components, member.dependency)]
    within = [each for each in members if inside(each, member)]
    return [each for each in within if not any(inside(each, other) for other in within)]


@dataclass(frozen=True)
class Chain:
    """What the fits of one chain share: all but dependency, components and floor."""

    classifier: str
    feature_model: str
    norm: str
    radius: float
    covariance: str | None
    upsampler: str | None
    loss: str
    epochs: int | None
    seed: int
    fit: FitEntry

    def family(self, member: Member) -> Family:
        """The family of a member."""
        return self.fit.family(
            member.dependency, member.components, self.covariance, self.upsampler, member.floor
        )

    def _settings(self, member: Member, inputs: int) -> SearchSettings:
        """The settings of a search up to a member, on a fit split of this many inputs."""
        given: dict[str, Any] = {"kappa": self.fit.kappa, "loss": self.loss}
        if self.fit.draws is not None:
            given["draws"] = self.fit.draws
        family, floors = self.family(member), (member.floor,)
        if self.fit.is_paper:
            made = paper_settings(family, inputs=inputs, floors=floors, **given)
        else:
            made = default_settings(family, floors=floors, **given)
        if Budget.parse(self.norm, self.radius).transform is not None:
            made = made.in_box()
        recipe = replace(made.recipe, inputs=self.fit.step_inputs or made.recipe.inputs)
        epochs = self.epochs or self.fit.epochs
        if epochs is None and self.fit.calls is None and self.fit.is_paper:
            epochs = PAPER_EPOCHS
        calls = self.fit.calls or made.calls
        if epochs is not None:
            calls = epochs * max(recipe.inputs, inputs) * recipe.draws
        return replace(made, recipe=recipe, calls=max(calls, recipe.inputs * recipe.draws))

    def stage(self, member: Member, inputs: int, *, first: bool) -> tuple[SearchSettings, Stage]:
        """The fit of one member: its settings, and the stage with its steps.

        Every family takes its share of the calls of a walk up to joint noise, whatever else is in the
        study, so that its fit does not change when the study grows.
        """
        settings = self._settings(member, inputs)
        if self.fit.is_paper:
            return settings, walk(settings)[0]
        stages = len(LADDER[-1].fitted.path)
        steps = settings.calls // stages // settings.step_calls
        name = f"{member.dependency.value}-{member.components}"
        stage = Stage(
            name=name if not member.floor else f"{name}-floor-{member.floor:g}",
            family=replace(settings.family, floor=member.floor),
            parents=(),
            recipe=settings.recipe,
            steps=max(1, steps) if member.floor < 1 else 0,
        )
        if first:
            stage = first_of_walk(stage)
        else:
            stage = replace(stage, recipe=replace(stage.recipe, rate=settings.child_rate))
        calls = max(1, stage.steps) * stage.recipe.inputs * stage.recipe.draws
        own = replace(settings, family=stage.family, recipe=stage.recipe, calls=calls)
        return own, stage
