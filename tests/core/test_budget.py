import copy
import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from nppr.core.budget import Budget, perturbed
from nppr.core.radius import parse_radius
from nppr.core.random_draws import DrawBlock
from nppr.errors import BudgetBreach, BudgetError, SpecError

NORMS = ["linf", "l2"]
radii = st.floats(1e-3, 10.0)
vectors = st.lists(st.floats(-50, 50, width=32), min_size=12, max_size=12).map(
    lambda values: torch.tensor(values, dtype=torch.float64).view(1, 3, 2, 2)
)


@pytest.mark.parametrize("norm", NORMS)
@given(v=vectors, radius=radii)
def test_clip_lands_in_the_ball_and_leaves_its_points_alone(
    norm: str, v: Tensor, radius: float
) -> None:
    budget = Budget.parse(norm, radius)
    clipped = budget.clip(v)
    assert bool(budget.contains(clipped).all())
    assert torch.allclose(budget.clip(clipped), clipped)
    inside = v * min(1.0, 0.99 * radius / max(float(budget.size(v)), 1e-300))
    assert torch.allclose(budget.clip(inside), inside, rtol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
@given(v=vectors, radius=radii)
def test_clip_is_the_nearest_point(norm: str, v: Tensor, radius: float) -> None:
    budget = Budget.parse(norm, radius)
    distance = float((budget.clip(v) - v).norm())
    for other in torch.randn(20, *v.shape[1:], dtype=v.dtype):
        assert distance <= float((budget.clip(other) - v).norm()) + 1e-9


@pytest.mark.parametrize("norm", NORMS)
@given(v=vectors, radius=radii)
def test_squash_stays_in_the_ball_and_keeps_signs(norm: str, v: Tensor, radius: float) -> None:
    budget = Budget.parse(norm, radius)
    squashed = budget.squash(v)
    assert bool(budget.contains(squashed).all())
    assert bool((squashed * v >= 0).all())


def test_squash_formulas() -> None:
    v = torch.tensor([3.0, 4.0, 0.0, 0.0]).view(1, 1, 2, 2)
    linf = Budget.linf(0.5).squash(v)
    assert linf.flatten().tolist() == pytest.approx([0.5 * math.tanh(3), 0.5 * math.tanh(4), 0, 0])
    # |v| = 5 and D = 4: length 0.5 tanh(5 / 2) in the direction (3/5, 4/5).
    l2 = Budget.l2(0.5).squash(v)
    length = 0.5 * math.tanh(2.5)
    assert l2.flatten().tolist() == pytest.approx([0.6 * length, 0.8 * length, 0, 0])
    assert torch.equal(Budget.l2(0.5).squash(torch.zeros(1, 1, 2, 2)), torch.zeros(1, 1, 2, 2))


@pytest.mark.parametrize("norm", NORMS)
def test_squash_can_be_differentiated_everywhere(norm: str) -> None:
    v = torch.zeros(2, 1, 2, 2)
    v[1] = 100.0
    v.requires_grad_()
    Budget.parse(norm, 0.5).squash(v).sum().backward()
    assert v.grad is not None
    assert bool(torch.isfinite(v.grad).all())


@pytest.mark.parametrize("norm", NORMS)
@given(g=vectors)
def test_steepest_has_unit_size_and_ascends(norm: str, g: Tensor) -> None:
    assume(float(g.abs().max()) > 1e-3)
    budget = Budget.parse(norm, 1.0)
    direction = budget.norm.steepest(g)
    assert float(budget.size(direction)) == pytest.approx(1.0)
    dual = float(g.abs().sum()) if norm == "linf" else float(g.norm())
    assert float((direction * g).sum()) == pytest.approx(dual, rel=1e-6)


def test_size_is_the_norm() -> None:
    delta = torch.tensor([[3.0, -4.0], [0.0, 0.0]]).view(1, 1, 2, 2)
    assert float(Budget.linf(1).size(delta)) == 4
    assert float(Budget.l2(1).size(delta)) == 5


def test_uniform_draws_fill_the_ball() -> None:
    draws = DrawBlock(0, "evaluate", tuple(range(4000)), 0, 1, torch.device("cpu"), 1)
    for budget in (Budget.linf(0.5), Budget.l2(0.5)):
        noise = budget.uniform(draws, "uniform", (1, 1, 2))
        assert bool(budget.contains(noise).all())
        size = budget.size(noise).flatten()
        # In two dimensions, P(|u| <= r s) = s^2 in either norm.
        for share in (0.3, 0.6, 0.9):
            assert float((size <= 0.5 * share).double().mean()) == pytest.approx(share**2, abs=0.03)


@pytest.mark.parametrize(
    "radius", ["-0.1", "0", "nan", "inf", "8/0", "", "abc", "1/2/3", "1e99999999", "/", "8/"]
)
def test_bad_radius_is_named(radius: str) -> None:
    with pytest.raises(BudgetError, match="`radius` must be a number > 0"):
        parse_radius(radius)


@pytest.mark.parametrize("radius", [-0.1, 0, math.nan, math.inf])
def test_bad_number_is_named(radius: float) -> None:
    with pytest.raises(BudgetError, match="`radius` must be a number > 0"):
        Budget.linf(radius)


def test_text_radius() -> None:
    assert Budget.linf("8/255").radius == 8 / 255
    assert Budget.linf(" 0.25 ").radius == 0.25
    assert str(Budget.linf("8/255")) == "linf 8/255"
    assert str(Budget.linf(0.5 / 255)) == "linf 0.5/255"
    assert str(Budget.l2(0.1)) == "l2 0.1"


def test_budgets_are_values() -> None:
    budget = Budget.linf("0.5/255")
    assert budget == copy.deepcopy(budget) == Budget.parse("linf", budget.radius_text)
    assert budget != Budget.l2("0.5/255")
    assert Budget(budget.norm, 1).radius == 1.0
    with pytest.raises(BudgetError, match=r"Budget\.linf"):
        Budget("linf", 0.1)  # type: ignore[arg-type]


def test_unknown_norm_suggests() -> None:
    with pytest.raises(SpecError, match="Did you mean 'linf'"):
        Budget.parse("linff", 0.1)


def test_require_names_source_budget_and_excess() -> None:
    budget = Budget.linf("8/255")
    budget.require(torch.full((2, 1, 2, 2), 8 / 255), "noise")
    with pytest.raises(BudgetBreach, match=r"'noise' must stay within linf 8/255.*0\.04"):
        budget.require(torch.full((2, 1, 2, 2), 0.04), "noise")
    with pytest.raises(BudgetBreach):
        budget.require(torch.full((2, 1, 2, 2), math.nan), "noise")


def test_perturbed_clips_to_images_and_quantises() -> None:
    x = torch.tensor([0.0, 0.5, 1.0]).view(1, 1, 1, 3)
    delta = torch.tensor([-0.1, 0.1, 0.1]).view(1, 1, 1, 3)
    assert perturbed(x, delta).flatten().tolist() == pytest.approx([0.0, 0.6, 1.0])
    levels = perturbed(x, delta / 3, quantise=True) * 255
    assert torch.equal(levels, levels.round())
    assert torch.equal(x, torch.tensor([0.0, 0.5, 1.0]).view(1, 1, 1, 3))
