"""What determines a run's numbers, and the budget it must have."""

from __future__ import annotations

import pytest

from helpers import two_class_data
from nppr.budget import Budget
from nppr.errors import BudgetError, NpprError, SpecError
from nppr.settings import Measure, default_draws, require_budget


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
    assert Measure(radii=("8/255", 0.01, "1/100000")).radii == ("1/100000", "0.01", "8/255")


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
