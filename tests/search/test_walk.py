from __future__ import annotations

import pytest

from nppr.noise import Dependency, Family
from nppr.search import default_settings, paper_settings
from nppr.fit.walk import SHARES, walk  # FIXME

PARENTS = {
    "independent": set(),
    "label": {"independent"},
    "input": {"independent"},
    "joint": {"label", "input"},
}


@pytest.mark.parametrize("dependency", Dependency)
def test_shares_add_up_to_the_calls(dependency: Dependency) -> None:
    assert sum(SHARES[dependency].values()) == pytest.approx(1)
    for steps in (*range(4, 40), 100, 1201):
        settings = default_settings(Family(dependency), calls=64 * steps + 5, inputs=64)
        stages = walk(settings)
        assert sum(stage.steps for stage in stages) == steps
        assert all(stage.steps >= 1 for stage in stages)


@pytest.mark.parametrize("dependency", Dependency)
def test_the_walk_ends_at_the_family_asked_for(dependency: Dependency) -> None:
    settings = default_settings(Family(dependency, components=3), floors=(0.25, 0.5))
    stages = walk(settings)
    assert stages[-1].family == Family(dependency, components=3, floor=0.25)
    assert [stage.last for stage in stages] == [False] * (len(stages) - 1) + [True]


@pytest.mark.parametrize("dependency", Dependency)
def test_parents_are_the_largest_families_inside(dependency: Dependency) -> None:
    stages = walk(default_settings(Family(dependency)))
    for number, stage in enumerate(stages):
        assert all(parent < number for parent in stage.parents)
        assert {stages[parent].name for parent in stage.parents} == PARENTS[stage.name]


def test_children_take_smaller_steps() -> None:
    settings = default_settings()
    for stage in walk(settings):
        expected = settings.child_rate if stage.parents else settings.recipe.rate
        assert stage.recipe.rate == expected


@pytest.mark.parametrize("dependency", Dependency)
def test_with_floor_1_there_is_nothing_to_fit(dependency: Dependency) -> None:
    stages = walk(default_settings(Family(dependency), floors=(1.0,)))
    assert [stage.steps for stage in stages] == [0] * len(stages)


def test_every_stage_has_a_step_however_few_calls_there_are() -> None:
    stages = walk(default_settings(calls=64, inputs=64))
    assert all(stage.steps >= 1 for stage in stages)


@pytest.mark.parametrize("dependency", Dependency)
def test_the_papers_preset_is_one_stage_from_scratch(dependency: Dependency) -> None:
    settings = paper_settings(Family(dependency), inputs=1000)
    (stage,) = walk(settings)
    assert stage.parents == ()
    assert stage.recipe == settings.recipe
    assert stage.steps * settings.step_calls == pytest.approx(settings.calls, rel=0.01)
