"""How well the rungs of the ladder were searched for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nppr.core.tally import Evaluate, Tally
from nppr.doctor.flags import SEARCH_BEHIND, SEEDS_APART, STARVED, STILL_FALLING, grade
from nppr.doctor.result_checks import check_ladder
from nppr.noise.rungs import Dependency
from nppr.report.model import Flag, Rung
from nppr.search.search_record import SearchCurve
from nppr.search.search_settings import SearchSettings, default_settings

NAME, ENOUGH = "nppr:joint", default_settings()


def tally(correct: Any, draws: int = 100) -> Tally[Evaluate]:
    counts = np.asarray(correct, dtype=np.int64)
    positions = np.arange(len(counts))
    known = np.ones(len(counts), bool)
    return Tally(Evaluate, positions, positions % 2, known, counts, draws, draws, 1)


def curve(
    *restarts: float, rounds: tuple[float, ...] = (0.52, 0.5), flat: bool = True
) -> SearchCurve:
    return SearchCurve(restarts=restarts or (0.52,), rounds=rounds, calls=26_880, flat=flat)


def checked(
    settings: SearchSettings | None = ENOUGH,
    tallies: dict[str, Tally[Evaluate]] | None = None,
    **changes: Any,
) -> list[Flag]:
    """The flags of a rung that is sound but for these changes."""
    sound: dict[str, Any] = {
        "name": NAME, "dependency": Dependency.JOINT, "floor": 0.0, "value": 0.5, "calls": 92_160,
        "curve": curve(), "select_inputs": 300,
    }  # fmt: skip
    rung = Rung(**sound | changes)
    known = {} if settings is None else {rung.name: settings}
    return list(check_ladder([rung], tallies or {}, known))


def test_a_sound_search_has_no_flag() -> None:
    assert checked() == []
    assert checked(settings=None) == []


def test_a_short_search_is_starved_and_names_the_calls_it_needs() -> None:
    needed = ENOUGH.needed_calls
    assert checked(replace(ENOUGH, calls=needed)) == []
    (found,) = checked(replace(ENOUGH, calls=needed - 1))
    assert (found.id, found.source) == (STARVED, NAME)
    assert f"{needed - 1:,} calls where {needed:,} are needed" in found.message


@pytest.mark.parametrize(("inputs", "starved"), [(0, True), (199, True), (200, False)])
def test_a_search_that_few_inputs_judged_is_starved(inputs: int, starved: bool) -> None:
    found = checked(select_inputs=inputs)
    assert [each.id for each in found] == [STARVED] * starved
    said = [
        f"judged on {inputs} inputs of the select split where 200 are needed" in each.message
        for each in found
    ]
    assert said == [True] * starved


def test_the_paper_judges_nothing_and_per_input_needs_no_select_split() -> None:
    assert checked(select_inputs=0, curve=None) == []
    own: dict[str, Any] = {
        "name": "nppr:per-input",
        "dependency": Dependency.PER_INPUT,
        "select_inputs": 30,
    }
    assert checked(settings=None, curve=curve(0.5, 0.51), **own) == []


def test_a_search_that_is_not_flat_at_its_maximum_is_still_falling() -> None:
    (found,) = checked(curve=curve(rounds=(0.7, 0.551, 0.5), flat=False))
    assert (found.id, found.source) == (STILL_FALLING, NAME)
    expected = (
        "55.1 % before the last round and 50.0 % at the maximum of 26,880 calls, on the select"
    )
    assert expected in found.message
    assert checked(curve=curve(rounds=(0.7, 0.551, 0.5))) == []
    assert checked(curve=curve(rounds=(0.5,), flat=False)) == []  # nothing to compare with


def test_the_rung_per_input_names_the_inputs_of_its_values() -> None:
    own: dict[str, Any] = {
        "name": "nppr:per-input",
        "dependency": Dependency.PER_INPUT,
        "select_inputs": 30,
    }
    (found,) = checked(None, curve=curve(0.5, 0.5, rounds=(0.6, 0.5), flat=False), **own)
    expected = (
        "60.0 % with half of the calls and 50.0 % at the maximum of 26,880 calls, on 30 inputs"
    )
    assert expected in found.message


@pytest.mark.parametrize(("other", "differ"), [(0.529, False), (0.531, True), (0.469, True)])
def test_searches_that_differ_by_three_points_are_flagged(other: float, differ: bool) -> None:
    expected = [SEEDS_APART] if differ else []
    assert [each.id for each in checked(seeds=(0.5, other))] == expected
    own: dict[str, Any] = {"name": "nppr:per-input", "dependency": Dependency.PER_INPUT}
    assert [each.id for each in checked(None, curve=curve(0.5, other), **own)] == expected


def test_restarts_that_only_chose_a_start_may_differ() -> None:
    assert checked(curve=curve(0.5, 0.9)) == []
    (found,) = checked(seeds=(0.5, 0.6, 0.55))
    assert "differ by 10.0 points on the evaluate split" in found.message


def test_a_source_of_the_set_that_did_better_is_named() -> None:
    generator = np.random.default_rng(0)
    own = generator.integers(40, 90, 200)
    for lower, behind in ((10, True), (0, False), (-5, False)):
        known = {NAME: tally(own), "universal": tally(own - lower)}
        found = checked(strongest="universal", strongest_value=0.4, tallies=known)
        assert [each.id for each in found] == [SEARCH_BEHIND] * behind
        said = [
            "10.0 percentage points above universal on the evaluate split" in each.message
            for each in found
        ]
        assert said == [True] * behind


def test_a_difference_within_chance_is_not_behind() -> None:
    own = np.full(50, 50)
    other = own.copy()
    other[:2] -= 30  # 1.2 points, and a standard error of 0.8
    known = {NAME: tally(own), "universal": tally(other)}
    assert checked(strongest="universal", tallies=known) == []


def test_every_flag_of_a_search_is_a_warning() -> None:
    known = {NAME: tally(np.full(50, 50)), "universal": tally(np.full(50, 20))}
    found = checked(
        replace(ENOUGH, calls=256),
        known,
        curve=curve(rounds=(0.9, 0.5), flat=False),
        seeds=(0.5, 0.9),
        strongest="universal",
    )
    assert [each.id for each in found] == [STARVED, STILL_FALLING, SEEDS_APART, SEARCH_BEHIND]
    assert {grade([each]).letter for each in found} == {"C"}
