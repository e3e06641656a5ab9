"""Requirements are read from words, and every mistake is one line with the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.errors import SpecError
from nppr.gate.policy import FORMS, Kind, make_policy, parse_requirement, read_policy
from nppr.noise.admissible_set import AdmissibleSet
from nppr.noise.rungs import Dependency
from nppr.run.resolve import read_budget
from nppr.statistics.noise_sets import Contaminated

BUDGET = Budget.linf(0.1)


@pytest.mark.parametrize("form", FORMS)
def test_the_example_of_every_form_is_one(form: str) -> None:
    kind, _, example = FORMS[form]
    found = parse_requirement(example, BUDGET)
    assert (found.kind, found.text) == (kind, example)


@given(st.integers(1, 999), st.sampled_from([each.value for each in Dependency]))
def test_values_are_fractions_or_percentages(thousandths: int, rung: str) -> None:
    value = thousandths / 1000
    plain = parse_requirement(f"NPPR {rung} floor 0.5 >= {value}", BUDGET)
    percent = parse_requirement(f"NPPR {rung} floor 0.5 >= {100 * value:.1f} %", BUDGET)
    assert plain.at_least == value == pytest.approx(percent.at_least)
    assert plain.admissible == AdmissibleSet(Dependency(rung), floor=0.5)
    assert plain.metric is Metric.NPPR


def test_every_part_of_a_requirement_is_read() -> None:
    bound = parse_requirement("bound tv:0.05 around gaussian >= 0.9", BUDGET)
    assert bound.noise_set == Contaminated(1.0, 0.05, "tv")
    assert (bound.source, bound.at_least) == ("gaussian", 0.9)
    worst = parse_requirement("worst weather under NPPR joint floor 0.5 >= 0.7", BUDGET)
    assert (worst.kind, worst.name) == (Kind.WORST, "weather")
    assert worst.admissible == AdmissibleSet(Dependency.JOINT, floor=0.5)
    paired = parse_requirement("not worse than runs/a b by more than 1 point (paired)", BUDGET)
    assert (paired.name, paired.at_least, paired.metric) == ("runs/a b", -0.01, Metric.PR)
    clean = parse_requirement("accuracy not worse than x by more than 0.5 points", BUDGET)
    assert (clean.metric, clean.at_least) == (Metric.ACCURACY, -0.005)


REFUSED = {
    "P uniform >= 0.9": "Did you mean 'PR'?",
    "PR unifrom >= 0.9": "Did you mean 'uniform'?",
    "PR uniform > 0.9": "must be of the form 'PR uniform >= 0.95'",
    "PR uniform >= 95": "a fraction in (0, 1)",
    "PR uniform >= 1.2.3": "must have numbers, got '1.2.3'",
    "PR pgd >= 0.9": "which gives AR",
    "PR >= 0.9": "must name a source",
    "PR uniform,gaussian >= 0.9": "`source` must be one of",
    "PR uniform floor 0.5 >= 0.9": "`floor` must be given with NPPR",
    "NPPR jont >= 0.9": "Did you mean 'joint'?",
    "NPPR joint not worse than x by more than 1 point": "must not be compared with a baseline",
    "accuracy uniform >= 0.9": "must be without noise",
    "bound tvv:0.05 >= 0.9": "Did you mean 'tv'?",
    "bound tv >= 0.9": "a set and one size",
    "bound tv:0.01,0.05 >= 0.9": "a set and one size",
    "grade >= E": "`grade` must be one of A, B, C, D",
    "grade B": "must be of the form 'grade >= B'",
    "no flag starvd": "Did you mean 'starved'?",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_wrong_requirement_is_one_line(words: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_requirement(words, BUDGET)
    assert REFUSED[words] in str(refused.value)
    assert "\n" not in str(refused.value)


POLICIES: dict[str, tuple[dict[str, Any], str]] = {
    "empty": ({"require": []}, "must list at least one requirement"),
    "none": ({}, "`require` of the policy must be given, got nothing"),
    "twice": ({"require": ["grade >= B", "grade >= B"]}, "which are the same"),
    "a flag twice": (
        {"require": ["no flag masking", "no flag gradient-masking"]}, "which are the same",
    ),
    "contradictory": (
        {"require": ["PR uniform >= 0.9", "PR uniform >= 0.8"]},
        "must state each quantity once, got 'PR uniform >= 0.9' and 'PR uniform >= 0.8'",
    ),
    "two grades": ({"require": ["grade >= B", "grade >= A"]}, "must state each quantity once"),
    "unknown key": ({"require": ["grade >= B"], "confidance": 0.9}, "Did you mean 'confidence'?"),
    "rung": ({"require": ["grade >= B"], "dependency": "joint"}, "requirements name rungs"),
    "about": ({"require": ["grade >= B"], "about": "tset-set"}, "Did you mean 'test-set'?"),
    "calls": ({"require": ["grade >= B"], "calls": 0}, "`calls` must be a whole number >= 1"),
    "confidence": ({"require": ["grade >= B"], "confidence": 1.5}, "must lie in (0, 1)"),
    "a word": (
        {"require": ["grade >= B"], "inputs": "many"},
        "`inputs` of the policy must be a whole number, got 'many'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", POLICIES)
def test_a_wrong_policy_is_one_line(case: str) -> None:
    keys, message = POLICIES[case]
    with pytest.raises(SpecError) as refused:
        make_policy(keys)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_policy_is_read_from_a_file_and_keys_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text('require = ["PR uniform >= 0.9"]\neps = 0.2\nfit-calls = 1000\nseed = 3\n')
    policy = read_policy(path, seed=4)
    budget = read_budget(policy.budget)
    assert budget is not None
    assert (budget.radius, policy.measure.seed, policy.search.calls) == (0.2, 4, 1000)
    path.write_text("require = [")
    with pytest.raises(SpecError, match="must be a TOML file"):
        read_policy(path)
    with pytest.raises(SpecError, match="must be a TOML file"):
        read_policy(tmp_path / "none.toml")


def test_a_grade_that_every_run_has_is_refused() -> None:
    with pytest.raises(SpecError, match="`grade` must be better than D"):
        make_policy({"require": ["grade >= D"]})
