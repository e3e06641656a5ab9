from __future__ import annotations

import math
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from helpers import FAMILIES
from nppr.errors import SpecError
from nppr.noise.family import TORCH_KERNEL, Family, Temperatures
from nppr.noise.rungs import Dependency
from nppr.search.search_settings import (
    FEWEST_STEPS,
    Recipe,
    SearchSettings,
    default_settings,
    paper_settings,
    walk,
)

HEAT = Temperatures(weights=3.0, means=2.0, stds=1.5, shared=1.5)


def test_temperatures_start_and_end_where_they_should() -> None:
    recipe = Recipe(tau=1.0, last_tau=0.1, heat=HEAT)
    assert (recipe.tau_at(0, 100), recipe.heat_at(0, 100)) == (1.0, HEAT)
    assert recipe.tau_at(99, 100) == pytest.approx(0.1)
    assert asdict(recipe.heat_at(99, 100)) == pytest.approx(asdict(Temperatures()))
    assert recipe.tau_at(33, 100) == pytest.approx(0.1 ** (1 / 3))
    assert recipe.heat_at(50, 101).weights == pytest.approx(2.0)


def test_the_rate_rises_in_the_warm_up_then_falls_to_its_last_share() -> None:
    recipe = Recipe(warm_up=0.1, last_rate=0.02)
    rates = [recipe.rate_at(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[49] == pytest.approx(0.5, rel=0.01)
    assert rates[:90] == sorted(rates[:90])
    assert rates[100:] == sorted(rates[100:], reverse=True)
    assert rates[-1] == pytest.approx(0.02, rel=0.01)
    assert max(rates) <= 1


def test_a_cycle_reaches_the_full_rate_before_it_falls() -> None:
    recipe = Recipe(warm_up=0.4, last_rate=1e-4, cycle=True)
    rates = [recipe.rate_at(step, 50) for step in range(50)]
    assert rates[:20] == pytest.approx([(step + 1) / 20 for step in range(20)])
    assert rates[20] == max(rates) == 1
    assert rates[35] == pytest.approx(0.5, abs=1e-3)
    assert rates[20:] == sorted(rates[20:], reverse=True)
    assert recipe.rate_at(50, 50) == pytest.approx(1e-4)
    assert max(Recipe(warm_up=0.4).rate_at(step, 50) for step in range(50)) < 0.7


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_cycle_of_few_steps_has_rates_between_0_and_1(steps: int) -> None:
    recipe = Recipe(warm_up=1.0, last_rate=1e-4, cycle=True)
    assert all(0 < recipe.rate_at(step, steps) <= 1 for step in range(steps))


BAD: dict[str, dict[str, object]] = {
    "fit-calls": {"calls": 0},
    "fit-seeds": {"seeds": 0},
    "floor": {"floors": (0.0, 1.5)},
    "fit-draws": {"draws": 0},
    "kappa": {"kappa": math.nan},
    "loss": {"loss": "hinge"},
    "step-inputs": {"inputs": 0},
}


@pytest.mark.parametrize("argument", BAD)
def test_a_bad_value_is_named_as_on_the_command_line(argument: str) -> None:
    with pytest.raises(SpecError, match=f"^`{argument}`"):
        default_settings(**BAD[argument])  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0.5, -3, "7", None])
def test_counts_are_whole_numbers(value: object) -> None:
    with pytest.raises(SpecError, match="`fit-seeds`"):
        SearchSettings(seeds=value)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="`fit-draws`"):
        Recipe(draws=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "floors", [(), (0.5, 0.5), (-0.1,), (math.nan,)], ids=["none", "twice", "negative", "nan"]
)
def test_floors_are_some_different_numbers_in_0_to_1(floors: tuple[float, ...]) -> None:
    with pytest.raises(SpecError, match="`floor`"):
        SearchSettings(floors=floors)


def test_fewer_calls_than_a_step_are_refused() -> None:
    with pytest.raises(SpecError, match=r"`fit-calls` must be at least one step, 512 calls"):
        default_settings(calls=511, inputs=128, draws=4)


@pytest.mark.parametrize("dependency", FAMILIES)
@pytest.mark.parametrize("upsampler", ["bicubic", "trainable"])
def test_the_papers_preset_follows_the_paper(dependency: Dependency, upsampler: str) -> None:
    family = Family(dependency, covariance="full", upsampler=upsampler)
    made = paper_settings(family, inputs=1000)
    assert made.calls == 50 * 1000 * 32
    assert made.recipe.draws == 32
    assert made.family.kernel == TORCH_KERNEL
    assert not made.family.scaled
    assert made.family.wide_heads
    assert made.family.random_start
    assert made.family.latent_dim == (128 if upsampler == "trainable" else None)
    assert not made.walks
    assert made.floors == (0.0,)
    assert made.preset == "paper"
    assert made.recipe.clip is None
    assert made.recipe.bound is None
    rates = {made.recipe.rate, made.recipe.head_rate}
    if dependency is Dependency.INDEPENDENT and upsampler != "trainable":
        assert rates == {2e-2}
        assert made.recipe.warm_up == 0.4
        assert max(made.recipe.rate_at(step, 50) for step in range(50)) == 1
        assert 2e-2 * made.recipe.last_rate == pytest.approx(2e-6)
    else:
        assert rates == {5e-4}
        assert {made.recipe.rate_at(step, 50) for step in range(50)} == {1.0}


def test_what_is_asked_for_goes_before_the_paper() -> None:
    made = paper_settings(inputs=1000, calls=5000, draws=8, kappa=2.0, seeds=2)
    assert (made.calls, made.recipe.draws, made.recipe.kappa, made.seeds) == (5000, 8, 2.0, 2)


def test_the_papers_family_is_that_of_its_main_table() -> None:
    family = paper_settings(inputs=1000).family
    assert (family.upsampler, family.covariance, family.components) == ("trainable", "full", 7)
    assert (family.latent_dim, family.hidden_dim, family.label_dim) == (128, 256, 64)
    assert family.min_std == 1e-4
    asked = paper_settings(Family(upsampler="trainable", latent_dim=9), inputs=1000).family
    assert asked.latent_dim == 9


def test_the_papers_preset_refuses_zero_calls_too() -> None:
    with pytest.raises(SpecError, match="`fit-calls`"):
        paper_settings(inputs=1000, calls=0)


@pytest.mark.parametrize("made", [default_settings(), paper_settings(inputs=64)])
def test_settings_survive_json(made: SearchSettings) -> None:
    adapter = TypeAdapter(SearchSettings)
    assert adapter.validate_json(adapter.dump_json(made)) == made


def ladder(*args: Any, **settings: Any) -> SearchSettings:
    """The settings of a search without the structures that need positions."""
    return default_settings(*args, **settings).without_positions()


WALKED = {
    "independent": ["independent"],
    "label": ["independent", "label"],
    "input": ["independent", "input"],
    "joint": ["independent", "label", "joint"],
}


@pytest.mark.parametrize("dependency", FAMILIES)
def test_the_walk_goes_through_nested_families_to_the_one_asked_for(
    dependency: Dependency,
) -> None:
    stages = walk(ladder(Family(dependency, components=3), floors=(0.25, 0.5)))
    names = WALKED[dependency.value]
    floors = [f"{name}, floor {floor}" for floor in (0.25, 0.5) for name in names]
    assert [stage.name for stage in stages] == floors
    assert stages[-1].family == Family(dependency, components=3, floor=0.5)
    for small, large in pairwise(stages[: len(names)]):
        assert large.family.dependency.contains(small.family.dependency)


@pytest.mark.parametrize("dependency", FAMILIES)
def test_parents_are_the_rung_above_and_the_same_rung_of_the_floor_before(
    dependency: Dependency,
) -> None:
    stages = walk(ladder(Family(dependency), floors=(0.0, 0.5, 0.75)))
    rungs = len(dependency.path)
    for number, stage in enumerate(stages):
        above = {number - 1} if number % rungs else set()
        before = {number - rungs} if number >= rungs else set()
        assert set(stage.parents) == above | before
        for parent in stage.parents:
            small = stages[parent].family
            assert stage.family.dependency.contains(small.dependency)
            assert (small.floor == stage.family.floor) == (parent in above)


@given(
    dependency=st.sampled_from(FAMILIES),
    floors=st.sampled_from([(0.0,), (0.5,), (0.0, 0.5), (0.0, 0.25, 0.5)]),
    steps=st.integers(50, 500),
    more=st.integers(0, 63),
)
def test_the_calls_of_all_stages_are_those_of_the_search(
    dependency: Dependency, floors: tuple[float, ...], steps: int, more: int
) -> None:
    """Less than one step of each floor is left over."""
    settings = ladder(Family(dependency), floors=floors, calls=64 * steps + more, inputs=64)
    left = settings.total_calls - sum(stage.calls for stage in walk(settings))
    assert 0 <= left < 65 * len(floors)


@pytest.mark.parametrize(("components", "expected"), [(1, 10), (3, 10), (12, 12)])
def test_noise_that_sees_the_label_has_a_component_for_every_class(
    components: int, expected: int
) -> None:
    settings = ladder(Family(Dependency.JOINT, components=components, label_dim=4))
    independent, label, joint = (
        stage.family for stage in walk(settings, 10, (3, 32, 32)) if not stage.family.floor
    )
    assert independent.components == components
    assert label.components == joint.components == expected
    assert label.label_dim == joint.label_dim == 10, "one direction for every class"
    asked = walk(replace(settings, per_class=False), 10, (3, 32, 32))
    assert {stage.family.components for stage in asked} == {components}
    assert {stage.family.label_dim for stage in asked} == {4}


def test_a_thousand_large_classes_share_components() -> None:
    shape = (3, 224, 224)
    *_, joint = walk(ladder(floors=(0.0,)), 1000, shape)
    assert 1 < joint.family.components < 1000
    assert joint.family.components * math.prod(shape) <= 2**25
    *_, huge = walk(ladder(floors=(0.0,)), 1000, (3, 4000, 4000))
    assert huge.family.components == 1


def test_without_the_label_there_is_one_component() -> None:
    stages = walk(ladder(Family(Dependency.INPUT)), 10, (1, 8, 8))
    assert {stage.family.components for stage in stages} == {1}


@pytest.mark.parametrize("dependency", FAMILIES)
def test_with_floor_1_there_is_nothing_to_fit(dependency: Dependency) -> None:
    stages = walk(ladder(Family(dependency), floors=(0.5, 1.0)))
    rungs = len(dependency.path)
    assert [stage.steps > 0 for stage in stages] == [True] * rungs + [False] * rungs


def test_every_stage_has_a_step_however_few_calls_there_are() -> None:
    stages = walk(ladder(calls=64, inputs=64))
    assert all(stage.steps >= 1 for stage in stages)


@pytest.mark.parametrize("dependency", FAMILIES)
def test_a_search_is_short_below_the_calls_it_needs(dependency: Dependency) -> None:
    settings = ladder(Family(dependency), floors=(0.0,), inputs=32, draws=2)
    assert not settings.is_short
    needed = settings.needed_calls
    enough, short = replace(settings, calls=needed), replace(settings, calls=needed - 1)
    assert (enough.is_short, short.is_short) == (False, True)
    assert min(stage.steps for stage in walk(enough)) == FEWEST_STEPS
    fewer = replace(settings, calls=needed - 4 * settings.step_calls)
    assert min(stage.steps for stage in walk(fewer)) < FEWEST_STEPS


@pytest.mark.parametrize("dependency", FAMILIES)
def test_rungs_are_those_of_the_walk_with_per_input_below(dependency: Dependency) -> None:
    settings = ladder(Family(dependency))
    assert [rung.value for rung in settings.rungs] == [*WALKED[dependency.value], "per-input"]
    assert [rung.value for rung in replace(settings, per_input_calls=0).rungs] == WALKED[
        dependency.value
    ]
    assert paper_settings(Family(dependency), inputs=64).rungs == (dependency,)


def test_calls_that_nobody_waits_for_are_refused() -> None:
    with pytest.raises(SpecError, match=r"^`fit-calls` must be at most 10,000,000,000, got 10,0"):
        SearchSettings(calls=10**10 + 1)


@pytest.mark.parametrize("calls", [-20, -1, 1, 4, 100_001])
def test_too_few_or_too_many_calls_per_input_are_refused(calls: int) -> None:
    wanted = rf"^`per-input-calls` must be 0 .* from 5 to 100,000, got {calls}"
    with pytest.raises(SpecError, match=wanted):
        SearchSettings(per_input_calls=calls)


@pytest.mark.parametrize("value", [7.5, "20", None, True])
def test_calls_per_input_are_a_whole_number(value: object) -> None:
    with pytest.raises(SpecError, match=r"^`per-input-calls`"):
        SearchSettings(per_input_calls=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("dependency", FAMILIES)
def test_the_papers_preset_is_one_stage_from_scratch(dependency: Dependency) -> None:
    settings = paper_settings(Family(dependency), inputs=1000)
    (stage,) = walk(settings, 10, (3, 32, 32))
    assert stage.parents == ()
    assert stage.restarts == 1
    assert stage.family == settings.family.with_(floor=0.0)
    assert stage.recipe == settings.recipe
    assert stage.steps * settings.step_calls == pytest.approx(settings.calls, rel=0.01)
