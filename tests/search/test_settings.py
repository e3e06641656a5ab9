from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from nppr.noise import Dependency, Family, Temperatures
from nppr.distributions.bicubic import TORCH  # FIXME
from nppr.errors import SpecError
from nppr.search import Recipe, SearchSettings, default_settings, paper_settings

HEAT = Temperatures(weights=3.0, means=2.0, stds=1.5, shared=1.5)


@pytest.mark.parametrize("steps", [1, 2, 100])
def test_temperatures_start_where_they_are_told(steps: int) -> None:
    recipe = Recipe(tau=1.0, last_tau=0.1, heat=HEAT)
    assert recipe.tau_at(0, steps) == 1.0
    assert recipe.heat_at(0, steps) == HEAT


def test_temperatures_end_where_they_are_told() -> None:
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


@pytest.mark.parametrize("dependency", Dependency)
@pytest.mark.parametrize("upsampler", ["bicubic", "trainable"])
def test_the_papers_preset_follows_the_paper(dependency: Dependency, upsampler: str) -> None:
    family = Family(dependency, covariance="full", upsampler=upsampler)
    made = paper_settings(family, inputs=1000)
    assert made.calls == 50 * 1000 * 32
    assert made.recipe.draws == 32
    assert made.family.kernel == TORCH
    assert not made.family.scaled
    assert not made.walks
    assert made.floors == (0.0,)
    assert made.preset == "paper"
    assert made.recipe.clip is None
    assert made.recipe.bound is None
    rates = {made.recipe.rate, made.recipe.head_rate}
    if dependency is Dependency.INDEPENDENT and upsampler != "trainable":
        assert rates == {2e-2}
        assert made.recipe.warm_up == 0.4
        assert 2e-2 * made.recipe.last_rate == pytest.approx(2e-6)
    else:
        assert rates == {5e-4}
        assert {made.recipe.rate_at(step, 50) for step in range(50)} == {1.0}


def test_what_is_asked_for_goes_before_the_paper() -> None:
    made = paper_settings(inputs=1000, calls=5000, draws=8, kappa=2.0, seeds=2)
    assert (made.calls, made.recipe.draws, made.recipe.kappa, made.seeds) == (5000, 8, 2.0, 2)


def test_the_papers_preset_refuses_zero_calls_too() -> None:
    with pytest.raises(SpecError, match="`fit-calls`"):
        paper_settings(inputs=1000, calls=0)


@pytest.mark.parametrize("made", [default_settings(), paper_settings(inputs=64)])
def test_settings_are_plain_values(made: SearchSettings) -> None:
    known = made.as_dict()
    assert Family.from_dict(known["family"]) == made.family
    assert json.loads(json.dumps(known, allow_nan=False)) == known
