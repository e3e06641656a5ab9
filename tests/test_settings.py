"""Settings are declared once, for Python, the command line, policies and study files."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from helpers import FAMILIES, two_class_data
from nppr.cli import commands
from nppr.cli.commands import AssessOptions, MeasureOptions, SpectrumOptions
from nppr.core.budget import Budget
from nppr.core.draw_count import DEFAULT_DRAWS, default_draws
from nppr.errors import BudgetError, NpprError, SpecError
from nppr.gate.policy import Policy
from nppr.noise.rungs import Dependency
from nppr.run.assess import assess, learn
from nppr.run.resolve import require_budget
from nppr.search.search_settings import SearchSettings, paper_settings, walk
from nppr.settings import (
    EFFORTS,
    RARE_CALLS,
    Assessment,
    Group,
    Measure,
    ModelSettings,
    Run,
    Search,
    build_tree,
    settings_in,
)

OPTIONS = [
    each
    for each in vars(commands).values()
    if isinstance(each, type) and issubclass(each, Group) and each.__name__.endswith("Options")
]


@pytest.mark.parametrize("tree", OPTIONS)
def test_every_flag_has_help_and_a_name_of_its_own(tree: type[Group]) -> None:
    for flag, setting in settings_in(tree).items():
        assert setting.info.description, flag
        assert setting.info.description[-1] in ".}", flag


def test_a_setting_is_declared_in_one_group() -> None:
    known = settings_in(Assessment)
    places: dict[str, set[str]] = {}
    for group in (each.annotation for each in Assessment.model_fields.values()):
        assert group is not None
        for flag in known:
            if known[flag].name in group.model_fields and known[flag].group:
                places.setdefault(flag, set()).add(known[flag].group)
    assert all(len(found) == 1 for found in places.values())


def test_no_command_declares_a_setting_anew() -> None:
    known = settings_in(Assessment)
    trees: list[type[Group]] = [*OPTIONS, Policy]
    anew = {
        (tree.__name__, flag)
        for tree in trees
        for flag, setting in settings_in(tree).items()
        if not setting.group and flag in known
    }
    training = {("TrainOptions", flag) for flag in ("batch-size", "norm", "eps", "seed")}
    replaced = {("GateOptions", flag) for flag in ("model", "weights", "data")}
    files = {(tree, "out") for tree in ("ReportOptions", "ExportOptions", "SchemaOptions")}
    assert anew == training | replaced | files


@pytest.mark.parametrize("group", [Measure, Search, Run])
def test_the_docstring_of_a_group_has_all_its_settings(group: type[Group]) -> None:
    assert [name for name in group.model_fields if f"`{name}`" not in str(group.__doc__)] == []


def test_flags_and_keywords_make_the_same_settings() -> None:
    typed = build_tree(
        AssessOptions, {"draws": "7", "fit-calls": "4096", "floor": "0,0.5", "seed": 3}
    )
    assert typed.measure == Measure(draws=7, seed=3)
    assert typed.search == Search(calls=4096, floor=(0, 0.5))
    assert typed.run == Run()


def test_numbers_are_read_from_text_and_from_lists() -> None:
    for given in ("0.5, 0.25", [0.5, 0.25], (0.5, 0.25)):
        assert ModelSettings(mean=given).mean == (0.5, 0.25)  # type: ignore[arg-type]
    assert ModelSettings(mean=0.5).mean == (0.5,)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="`mean` must be numbers separated by commas, got 'a'"):
        ModelSettings(mean="a")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="extra_forbidden"):
        ModelSettings(men=0.5)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Search(fit_calls=9), r"`fit_calls` belongs to search=nppr.Search\(calls=...\)"),  # type: ignore[call-arg]
        (lambda: Search(confidence=0.9), r"belongs to measure=nppr.Measure\(confidence=...\)"),  # type: ignore[call-arg]
        (lambda: Measure(out="a"), r"`out` belongs to run=nppr.Run\(out=...\)"),  # type: ignore[call-arg]
        (lambda: Measure(calls=9), r"`calls` belongs to search=nppr.Search\(calls=...\)"),  # type: ignore[call-arg]
        (lambda: Run(draws=9), r"`draws` belongs to measure=nppr.Measure\(draws=...\)"),  # type: ignore[call-arg]
        (lambda: Run(weights="a"), r"model=nppr.load_classifier\(model, weights=...\)"),  # type: ignore[call-arg]
        (lambda: Search(eps=0.1), r"`eps` belongs to budget=nppr.Budget.linf"),  # type: ignore[call-arg]
        (lambda: assess(draws=9), r"`draws` belongs to measure=nppr.Measure\(draws=...\)"),  # type: ignore[call-arg]
        (lambda: assess(fit_calls=9), r"`fit_calls` belongs to search=nppr.Search\(calls=...\)"),  # type: ignore[call-arg]
        (lambda: assess(sorces="uniform"), "`argument of nppr.assess` must be one of"),  # type: ignore[call-arg]
        (lambda: learn(resize=8), r"`resize` belongs to data=nppr.load_data\(data, resize=...\)"),  # type: ignore[call-arg]
        (lambda: assess(measure={"draws": 9}), r"`measure` must be nppr.Measure\(...\), got dict"),  # type: ignore[arg-type]
        (lambda: assess(effort="quick", measure=Measure(effort="normal")), "given once"),
        (lambda: Measure(drawz=3), "Did you mean 'draws'"),  # type: ignore[call-arg]
        (lambda: Measure(draws="many"), "`draws` must be a whole number, got 'many'"),  # type: ignore[arg-type]
        (lambda: build_tree(AssessOptions, {"drawz": 3}), "Did you mean 'draws'"),
        (lambda: Measure(effort="slow"), "`effort` must be one of"),
    ],
)
def test_unknown_settings_name_the_right_place(make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_rare_failures_have_calls_only_if_they_are_searched_for() -> None:
    assert build_tree(MeasureOptions, {}).measured.rare_calls is None
    assert build_tree(MeasureOptions, {"rare": True}).measured.rare_calls == RARE_CALLS
    with pytest.raises(SpecError, match="`rare-calls` must be given with --rare"):
        build_tree(MeasureOptions, {"rare-calls": 100_000})


def test_an_effort_sets_what_is_not_stated() -> None:
    calls = [Search().resolve(900, effort).calls for effort in EFFORTS]
    assert calls == sorted(calls)
    assert len(set(calls)) == 3
    draws = [Measure(effort=effort).of_inputs(300).draws for effort in EFFORTS]
    assert draws == [16, DEFAULT_DRAWS, 4 * DEFAULT_DRAWS]
    for effort in EFFORTS:
        assert Search(calls=5000, seeds=2).resolve(900, effort).calls == 5000
        assert Search(calls=5000, seeds=2).resolve(900, effort).seeds == 2
        assert Measure(draws=7, effort=effort).of_inputs(300).draws == 7


def test_a_preset_has_the_defaults_of_a_search() -> None:
    settings = Search().resolve(100)
    assert settings == SearchSettings()
    paper = Search(preset="paper", dependency="label").resolve(100)
    assert paper.floors == (0.0,)
    assert paper.family.dependency is Dependency.LABEL
    assert paper.family == paper_settings(inputs=100).family.with_(dependency=Dependency.LABEL)
    assert paper.recipe.draws == 32
    chosen = Search(
        preset="paper", covariance="diag", floor=(0.5,), min_std=0.2, latent_dim=7, hidden_dim=9
    ).resolve(100)
    assert (chosen.family.covariance, chosen.floors) == ("diag", (0.5,))
    family = chosen.family
    assert (family.min_std, family.latent_dim, family.hidden_dim) == (0.2, 7, 9)
    assert build_tree(SpectrumOptions, {}).search.resolve(100).floors == (0, 0.25, 0.5, 0.75, 1)


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
    "no calls": ({"calls": 0}, "`fit-calls` must be a whole number >= 1, got 0"),
    "negative calls": ({"calls": -92_160}, "`fit-calls` must be a whole number >= 1"),
    "less than a step": ({"calls": 255}, "`fit-calls` must be at least one step, 256 calls"),
    "no seed": ({"seeds": 0}, "`fit-seeds` must be a whole number >= 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_absurd_budgets_of_a_search_are_one_clear_line(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(SpecError) as refused:
        Search(**given)  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("rung", [*(each.value for each in FAMILIES), "per-input"])
def test_the_dependency_is_how_far_down_the_ladder_a_search_goes(rung: str) -> None:
    made = Search(dependency=rung).resolve(100)
    own = rung == "per-input"
    assert made.family.dependency.value == ("joint" if own else rung)
    assert made.per_input_calls == (20 if own else 0)
    assert made.rungs[-1].value == rung
    for calls in (0, 7):
        asked = Search(per_input_calls=calls).resolve(100)
        assert asked.per_input_calls == calls
        assert asked.rungs[-1].value == ("per-input" if calls else "joint")
    assert Search(dependency="label", per_input_calls=0).resolve(1).rungs[1:] == (Dependency.LABEL,)


def test_components_that_are_asked_for_are_kept() -> None:
    assert Search().resolve(1).per_class
    asked = Search(components=3).resolve(1)
    assert (asked.per_class, asked.family.components) == (False, 3)
    assert {stage.family.components for stage in walk(asked, 10, (1, 8, 8))} == {3}


def test_a_search_of_very_many_calls_is_no_mistake() -> None:
    made = Search(calls=10**10).resolve(1)
    assert sum(stage.calls for stage in walk(made, 10, (1, 8, 8))) <= made.total_calls


def test_settings_are_checked_at_construction() -> None:
    with pytest.raises(SpecError, match="`draws`"):
        Measure(draws=0)
    with pytest.raises(SpecError, match="`confidence`"):
        Measure(confidence=float("nan"))
    with pytest.raises(SpecError, match="`precision` must lie in"):
        Measure(precision=0.5)


@pytest.mark.parametrize("radii", [("0.1", "1/10"), ("x",)], ids=["twice", "word"])
def test_radii_are_checked(radii: tuple[str, ...]) -> None:
    with pytest.raises(NpprError, match="`radii`"):
        Measure(radii=radii)


def test_radii_are_kept_as_written_smallest_first() -> None:
    assert Measure(radii=("8/255", "0.01", "1/100000")).radii == ("1/100000", "0.01", "8/255")


def test_a_budget_is_a_budget_within_the_images_and_stated() -> None:
    other = two_class_data().name
    assert require_budget(None, "digits") == Budget.linf(0.1)
    assert require_budget(Budget.l2(3.0), other) == Budget.l2(3.0)
    for budget, data, message in (
        (None, other, "must be stated"),
        (Budget.linf(1.5), "digits", "at most 1"),
        (0.1, "digits", "must be a Budget"),
    ):
        with pytest.raises(BudgetError, match=message):
            require_budget(budget, data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inputs", "draws"),
    [(1, 100), (999, 100), (1_000, 100), (1_001, 100), (1_011, 99), (5_000, 20), (10_000, 16)],
)
def test_more_inputs_need_fewer_draws_each(inputs: int, draws: int) -> None:
    assert default_draws(inputs) == draws
    assert default_draws(10 * inputs) <= draws
    assert default_draws(10**7) == 16


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Measure(draws=True), "draws"),
        (lambda: Measure(confidence=True), "confidence"),
        (lambda: Search(calls=True), "fit-calls"),
        (lambda: Run(workers=False), "workers"),
    ],
)
def test_true_is_not_a_number(make: Any, name: str) -> None:
    with pytest.raises(SpecError, match=f"`{name}` must be a number, got "):
        make()
