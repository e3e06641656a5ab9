"""Flags: each declared once, documented and weighed; the grade they make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from nppr.core.tally import Claim, Direction, Metric
from nppr.data import from_arrays
from nppr.doctor.flags import (
    ATTACK_TOO_WEAK,
    CLASS_IMBALANCE,
    FEW_DRAWS,
    FEW_INPUTS,
    GRADIENT_MASKING,
    HEADLINE_MISSING,
    LIMITS,
    MEANING,
    NEAR_CHANCE,
    NEARLY_DETERMINISTIC,
    NO_GRADIENTS,
    NORMALISATION,
    NOTHING_MEASURED,
    ONE_COMPONENT,
    OVERLAP,
    PRECISION,
    SEVERITY,
    SINGLE_ATTACK,
    STARVED,
    TRAIN_MODE,
    ZERO_GRADIENTS,
    Severity,
    could_be_raised,
    flag,
    grade,
    number_flags,
    overlap_flags,
)
from nppr.report.model import Grade
from nppr.report.number import AttackSubject, Number, StatedInterval
from report.page.made_runs import made_report

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "flags.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| ([a-z]+) \|$", DOCUMENTED, re.MULTILINE))


def test_every_flag_is_documented_with_its_severity() -> None:
    assert {name: severity.value for name, severity in SEVERITY.items()} == ROWS


def test_a_message_is_what_was_found_and_what_it_means() -> None:
    found = flag(FEW_INPUTS, "3 inputs are correct", "uniform")
    assert found.message == "3 inputs are correct: " + MEANING[FEW_INPUTS]
    assert (found.id, found.source) == (FEW_INPUTS, "uniform")
    assert flag(FEW_INPUTS).message == MEANING[FEW_INPUTS]


def test_a_flag_that_says_too_high_limits_no_upper_bound() -> None:
    """Read off the meanings: every flag that names a direction, and the default of the others."""
    too_high = [
        name
        for name, meaning in MEANING.items()
        if re.search(r"too high|stopped early|cannot lose much|worse .* is not ruled out", meaning)
    ]
    assert {STARVED, ATTACK_TOO_WEAK, HEADLINE_MISSING, NEAR_CHANCE} < set(too_high)
    for name in too_high:
        assert Direction.UPPER_BOUND not in LIMITS[name], name
    mild = {
        name for name, each in SEVERITY.items() if each in (Severity.NOTE, Severity.INFORMATION)
    }
    assert {LIMITS[name] for name in mild} == {()}
    serious = {name for name, each in SEVERITY.items() if each is Severity.SERIOUS}
    assert {frozenset(LIMITS[name]) for name in serious - set(too_high)} == {frozenset(Direction)}
    assert flag(STARVED).limits == ()


def test_a_flag_of_many_results_is_raised_once_per_source() -> None:
    rows = [
        Number(
            subject=AttackSubject(source=source), metric=Metric.AR, confidence=0.95,
            flags=(NO_GRADIENTS,),
        )
        for source in ("pgd", "pgd", "cw")
    ]  # fmt: skip
    assert [found.source for found in number_flags(rows)] == ["pgd", "cw"]
    interval = StatedInterval(
        low=0.0, high=1.0, method="normal", claim=Claim.POPULATION, flags=("approximate-interval",)
    )
    row = rows[0].with_intervals(interval)
    assert [found.id for found in number_flags([row])] == [NO_GRADIENTS, "approximate-interval"]


def test_the_same_image_in_two_splits_is_flagged() -> None:
    images = torch.rand(20, 1, 4, 4)
    labels = torch.arange(20) % 2
    assert not overlap_flags(from_arrays(images, labels))
    same = overlap_flags(from_arrays(torch.ones(20, 1, 4, 4), labels))
    assert {found.id for found in same} == {OVERLAP}


@pytest.mark.parametrize(
    ("names", "letter", "deciding"),
    [
        ((), "A", ()),
        ((ONE_COMPONENT, NEARLY_DETERMINISTIC), "A", ()),
        ((FEW_DRAWS, ONE_COMPONENT, CLASS_IMBALANCE), "B", (FEW_DRAWS, CLASS_IMBALANCE)),
        ((TRAIN_MODE,), "A", ()),
        ((FEW_DRAWS, FEW_INPUTS), "C", (FEW_INPUTS,)),
        ((SINGLE_ATTACK,), "C", (SINGLE_ATTACK,)),
        ((FEW_INPUTS, NORMALISATION), "D", (NORMALISATION,)),
        ((FEW_DRAWS, ATTACK_TOO_WEAK), "C", (ATTACK_TOO_WEAK,)),
        ((NO_GRADIENTS, HEADLINE_MISSING), "C", (HEADLINE_MISSING,)),
        ((NOTHING_MEASURED,), "D", (NOTHING_MEASURED,)),
        ((ATTACK_TOO_WEAK, NEAR_CHANCE, FEW_DRAWS, OVERLAP), "D", (NEAR_CHANCE, OVERLAP)),
    ],
)
def test_the_worst_flag_decides(
    names: tuple[str, ...], letter: str, deciding: tuple[str, ...]
) -> None:
    found = grade([flag(name) for name in names])
    assert found.letter == letter
    for name in names:
        assert (name in found.reason) is (name in deciding)


def test_a_flag_of_many_sources_is_named_once() -> None:
    found = grade([flag(FEW_DRAWS, source=source) for source in ("uniform", "gaussian")])
    assert found == Grade(letter="B", reason="the numbers hold, with notes (few-draws)")


def test_only_what_was_looked_for_can_be_raised() -> None:
    whole, noise = made_report()[0], made_report(only="noise")[0]
    assert could_be_raised(NEAR_CHANCE, noise)
    assert could_be_raised(GRADIENT_MASKING, whole)
    assert not could_be_raised(GRADIENT_MASKING, noise)
    assert could_be_raised(STARVED, whole)
    assert not could_be_raised(STARVED, noise)
    assert not could_be_raised(PRECISION, whole)
    blind = noise.model_copy(update={"flags": (flag(NO_GRADIENTS),)})
    assert could_be_raised(ZERO_GRADIENTS, noise)
    assert not could_be_raised(ZERO_GRADIENTS, blind)
