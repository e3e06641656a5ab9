from __future__ import annotations

import math
from dataclasses import asdict

import pytest
from pydantic import TypeAdapter

from helpers import FAMILIES
from nppr.errors import SpecError
from nppr.noise.family import TORCH_KERNEL, Dependency, Family, Temperatures
from nppr.search.search_settings import (
    SHARES,
    Recipe,
    SearchSettings,
    default_settings,
    paper_settings,
    walk,
)

HEAT = Temperatures(weights=3.0, means=2.0, stds=1.5, shared=1.5)


@pytest.mark.parametrize("steps", [1, 2, 100])
def test_temperatures_start_where_they_should(steps: int) -> None:
    recipe = Recipe(tau=1.0, last_tau=0.1, heat=HEAT)
    assert recipe.tau_at(0, steps) == 1.0
    assert recipe.heat_at(0, steps) == HEAT


def test_temperatures_end_where_they_should() -> None:
    recipe = Recipe(tau=1.0, last_tau=0.1, heat=HEAT)
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


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    assert Recipe(warm_up=0.0).rate_at(0, 50) == 1
    assert Recipe(warm_up=0.4).rate_at(0, 1) == 1


def test_a_last_rate_of_one_stays() -> None:
    recipe = Recipe(warm_up=0.0, last_rate=1.0)
    assert {recipe.rate_at(step, 40) for step in range(40)} == {1.0}


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


PARENTS = {
    "independent": set(),
    "label": {"independent"},
    "input": {"independent"},
    "joint": {"label", "input"},
}


@pytest.mark.parametrize("dependency", FAMILIES)
def test_shares_add_up_to_the_calls(dependency: Dependency) -> None:
    assert sum(SHARES[dependency].values()) == pytest.approx(1)
    for steps in (*range(4, 40), 100, 1201):
        settings = default_settings(Family(dependency), calls=64 * steps + 5, inputs=64)
        stages = walk(settings)
        assert sum(stage.steps for stage in stages) == steps
        assert all(stage.steps >= 1 for stage in stages)


@pytest.mark.parametrize("dependency", FAMILIES)
def test_the_walk_ends_at_the_family_asked_for(dependency: Dependency) -> None:
    settings = default_settings(Family(dependency, components=3), floors=(0.25, 0.5))
    stages = walk(settings)
    assert stages[-1].family == Family(dependency, components=3, floor=0.25)
    assert [stage.last for stage in stages] == [False] * (len(stages) - 1) + [True]


@pytest.mark.parametrize("dependency", FAMILIES)
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


@pytest.mark.parametrize("dependency", FAMILIES)
def test_with_floor_1_there_is_nothing_to_fit(dependency: Dependency) -> None:
    stages = walk(default_settings(Family(dependency), floors=(1.0,)))
    assert [stage.steps for stage in stages] == [0] * len(stages)


def test_every_stage_has_a_step_however_few_calls_there_are() -> None:
    stages = walk(default_settings(calls=64, inputs=64))
    assert all(stage.steps >= 1 for stage in stages)


@pytest.mark.parametrize("dependency", FAMILIES)
def test_the_papers_preset_is_one_stage_from_scratch(dependency: Dependency) -> None:
    settings = paper_settings(Family(dependency), inputs=1000)
    (stage,) = walk(settings)
    assert stage.parents == ()
    assert stage.recipe == settings.recipe
    assert stage.steps * settings.step_calls == pytest.approx(settings.calls, rel=0.01)
