"""Options are declared once, for the command line, study files and the library."""

from __future__ import annotations

import pytest
from nppr.options import (
    RARE_CALLS,
    FamilyOptions,
    MeasureOptions,
    ModelOptions,
    Options,
    RunOptions,
    SearchOptions,
    TrainOptions,
)
from pydantic import ValidationError

from helpers import FAMILIES
from nppr.cli.measure_commands import AssessOptions, FitOptions, SpectrumOptions
from nppr.cli.train_command import TrainCommandOptions
from nppr.errors import SpecError
from nppr.noise.family import Dependency
from nppr.random_draws import DRAWS
from nppr.search.search_settings import SearchSettings, paper_settings, walk
from nppr.study.study_file import ClassifierEntry, FitEntry


@pytest.mark.parametrize(
    ("group", "command", "table"),
    [
        (ModelOptions, AssessOptions, ClassifierEntry),
        (FamilyOptions, FitOptions, FitEntry),
        (TrainOptions, TrainCommandOptions, TrainOptions),
    ],
)
def test_a_command_and_a_study_file_share_their_options(
    group: type[Options], command: type[Options], table: type[Options]
) -> None:
    for name, declared in group.model_fields.items():
        if name == "model":
            continue  # a table must name it, a command has a default
        assert command.model_fields[name].description == declared.description
        assert command.model_fields[name].default == declared.default
        assert table.model_fields[name].default == declared.default


@pytest.mark.parametrize("command", [AssessOptions, FitOptions, TrainCommandOptions])
def test_every_option_has_help(command: type[Options]) -> None:
    for name, field in command.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_numbers_are_read_from_text_and_from_lists() -> None:
    for given in ("0.5, 0.25", [0.5, 0.25], (0.5, 0.25)):
        assert ModelOptions(mean=given).mean == (0.5, 0.25)  # type: ignore[arg-type]
    assert ModelOptions(mean=0.5).mean == (0.5,)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="`mean` must be numbers separated by commas, got 'a'"):
        ModelOptions(mean="a")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        ModelOptions(men=0.5)  # type: ignore[call-arg]


def test_settings_of_a_run_are_those_of_the_options() -> None:
    plain = RunOptions(inputs=9, seed=3).run_settings()
    assert (plain.inputs, plain.seed, plain.draws, plain.rare_calls) == (9, 3, DRAWS, None)
    measured = MeasureOptions(quantise=True, rare=True, radii="0.2, 1/10").run_settings()
    assert measured.quantise
    assert measured.rare_calls == RARE_CALLS
    assert measured.radii == ("1/10", "0.2")
    assert AssessOptions(only_merged=True).run_settings().only_merged


def test_a_preset_has_the_defaults_of_a_search() -> None:
    settings = SearchOptions().search_settings(100)
    assert settings == SearchSettings()
    paper = SearchOptions(preset="paper", dependency="label").search_settings(100)
    assert paper.floors == (0.0,)
    assert paper.family.dependency is Dependency.LABEL
    assert paper.family == paper_settings(inputs=100).family.with_(dependency=Dependency.LABEL)
    assert paper.recipe.draws == 32
    chosen = SearchOptions(
        preset="paper", covariance="diag", floor=(0.5,), min_std=0.2, latent_dim=7, hidden_dim=9
    ).search_settings(100)
    assert (chosen.family.covariance, chosen.floors) == ("diag", (0.5,))
    assert (chosen.family.min_std, chosen.family.latent_dim, chosen.family.hidden_dim) == (
        0.2,
        7,
        9,
    )
    assert SpectrumOptions().search_settings(100).floors == (0, 0.25, 0.5, 0.75, 1)


REFUSED = {
    "negative": ({"per_input_calls": -3}, "`per-input-calls` must be 0 (off) or a whole number"),
    "one": ({"per_input_calls": 1}, "from 5 to 100,000, got 1"),
    "too few": ({"per_input_calls": 4}, "from 5 to 100,000, got 4"),
    "another rung": (
        {"per_input_calls": 20, "dependency": "label"},
        "`per-input-calls` must be given with --dependency per-input, got --dependency label",
    ),
    "paper": ({"per_input_calls": 20, "preset": "paper"}, "per-input, got --preset paper"),
    "paper, per-input": (
        {"dependency": "per-input", "preset": "paper"}, "`dependency` must be one of",
    ),
    "no such rung": ({"dependency": "per-imput"}, "Did you mean 'per-input'"),
    "no calls": ({"fit_calls": 0}, "`fit-calls` must be a whole number >= 1, got 0"),
    "negative calls": ({"fit_calls": -92_160}, "`fit-calls` must be a whole number >= 1"),
    "less than a step": ({"fit_calls": 255}, "`fit-calls` must be at least one step, 256 calls"),
    "no seed": ({"fit_seeds": 0}, "`fit-seeds` must be a whole number >= 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_absurd_budgets_of_a_search_are_one_clear_line(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(SpecError) as refused:
        SearchOptions(**given)  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("rung", [*(each.value for each in FAMILIES), "per-input"])
def test_the_dependency_is_how_far_down_the_ladder_a_search_goes(rung: str) -> None:
    made = SearchOptions(dependency=rung).search_settings(100)
    own = rung == "per-input"
    assert made.family.dependency.value == ("joint" if own else rung)
    assert made.per_input_calls == (20 if own else 0)
    assert made.rungs[-1].value == rung
    for calls in (0, 7):
        asked = SearchOptions(per_input_calls=calls).search_settings(100)
        assert asked.per_input_calls == calls
        assert asked.rungs[-1].value == ("per-input" if calls else "joint")
    assert SearchOptions(dependency="label", per_input_calls=0).search_settings(1).rungs[1:] == (
        Dependency.LABEL,
    )


def test_components_that_are_asked_for_are_kept() -> None:
    assert SearchOptions().search_settings(1).per_class
    asked = SearchOptions(components=3).search_settings(1)
    assert (asked.per_class, asked.family.components) == (False, 3)
    assert {stage.family.components for stage in walk(asked, 10, (1, 8, 8))} == {3}


def test_a_search_of_very_many_calls_is_no_mistake() -> None:
    made = SearchOptions(fit_calls=10**10).search_settings(1)
    assert sum(stage.calls for stage in walk(made, 10, (1, 8, 8))) <= made.total_calls
