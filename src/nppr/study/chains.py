"""Chains of fits: the families that a study fits, where each starts, and its settings."""

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
    make_stage,
    paper_settings,
    walk,
)
from nppr.study.study_file import FitEntry


@dataclass(frozen=True, order=True)
class Member:
    """A family of a chain: the settings in which the families of the chain differ.

    Noise that is searched for on each input separately starts from the fit of the rung above it.
    """

    floor: float
    components: int
    dependency: Dependency

    @property
    def fitted(self) -> Member:
        """The member whose fit provides the noise of this one."""
        return replace(self, dependency=self.dependency.fitted)


def is_inside(small: Member, large: Member) -> bool:
    """Return whether the second family contains every distribution of the first, and more.

    >>> is_inside(Member(0, 3, Dependency.INPUT), Member(0, 7, Dependency.JOINT))
    True
    """
    return (
        small != large
        and small.floor == large.floor
        and small.components <= large.components
        and large.dependency.contains(small.dependency)
    )


def add_walked(wanted: Iterable[Member]) -> list[Member]:
    """Return the wanted members with those that the search goes through, smaller families first.

    The search starts at noise that depends on nothing and has no floor, and goes through label and
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


def find_parents(member: Member, members: Iterable[Member]) -> list[Member]:
    """Return the largest members inside this one; for a member with a floor, the one without."""
    if member.floor:
        return [Member(0.0, member.components, member.dependency)]
    within = [each for each in members if is_inside(each, member)]
    return [each for each in within if not any(is_inside(each, other) for other in within)]


@dataclass(frozen=True)
class Chain:
    """The settings that the fits of a chain share: all but dependency, components and floor."""

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
        """Return the family of a member."""
        return self.fit.family(
            member.dependency, member.components, self.covariance, self.upsampler, member.floor
        )

    def _settings(self, member: Member, inputs: int) -> SearchSettings:
        """Return the settings of a search up to a member, on a fit split of this many inputs."""
        given: dict[str, Any] = {"kappa": self.fit.kappa, "loss": self.loss}
        if self.fit.draws is not None:
            given["draws"] = self.fit.draws
        family, floors = self.family(member), (member.floor,)
        if self.fit.is_paper:
            most = max(inputs, self.fit.step_inputs or 0)
            made = paper_settings(family, inputs=most, floors=floors, **given)
        else:
            made = default_settings(family, floors=floors, **given)
        if Budget.parse(self.norm, self.radius).transform is not None:
            made = made.in_box()
        recipe = replace(made.recipe, inputs=self.fit.step_inputs or made.recipe.inputs)
        epochs = self.epochs or self.fit.epochs
        calls = self.fit.calls or made.calls
        if epochs is not None:
            calls = epochs * max(recipe.inputs, inputs) * recipe.draws
        return replace(made, recipe=recipe, calls=max(calls, recipe.inputs * recipe.draws))

    def stage(self, member: Member, inputs: int, *, first: bool) -> tuple[SearchSettings, Stage]:
        """Return the settings of the fit of a member, and its stage.

        Every family uses the same fraction of the calls of a search up to joint noise, so its fit does
        not change when the study grows.
        """
        settings = self._settings(member, inputs)
        if self.fit.is_paper:
            return settings, walk(settings)[0]
        stages = len(LADDER[-1].fitted.path)
        steps = settings.calls // stages // settings.step_calls
        name = f"{member.dependency.value}-{member.components}"
        name += f"-floor-{member.floor:g}" if member.floor else ""
        family = replace(settings.family, floor=member.floor)
        stage = make_stage(settings, name, family, max(1, steps), first=first)
        calls = max(1, stage.steps) * stage.recipe.inputs * stage.recipe.draws
        own = replace(settings, family=stage.family, recipe=stage.recipe, calls=calls)
        return own, stage
