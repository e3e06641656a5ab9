"""The weak adversary: where its draws lie, and around what."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import Linear, evaluate_part, half_classifier, two_class_data
from nppr.budget import Budget
from nppr.classifiers import Classifier, frozen
from nppr.random_draws import DrawBlock
from nppr.errors import SpecError
from nppr.measure import measure
from nppr.report.rows import rows_of
from nppr.sources import Clean, Uniform, WeakAdversary
from nppr.tally import Metric

BUDGETS = [Budget.linf(0.1), Budget.l2(0.5)]
DATA = two_class_data(20)
TINY = 1e-12


def draws(source: WeakAdversary, block: int = 0, inputs: int = 20) -> Tensor:
    """Perturbations `(inputs, 16, 1, 4, 4)` against `half_classifier`."""
    x, y = DATA.evaluate.batch(np.arange(inputs))
    numbers = DrawBlock(0, "evaluate", tuple(range(inputs)), block, 16, torch.device("cpu"))
    with frozen(Classifier(half_classifier())) as model:
        return source.perturb(model, x, y, numbers)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_draws_lie_in_the_budget_and_differ(budget: Budget) -> None:
    delta = draws(WeakAdversary(budget))
    assert bool(budget.contains(delta).all())
    assert float((delta - delta[:, :1]).abs().amax((2, 3, 4))[:, 1:].min()) > 0


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_all_draws_of_an_input_surround_one_point(budget: Budget) -> None:
    """In the same block and in others; other inputs have other points."""
    source = WeakAdversary(budget, variance=TINY)
    first, second = draws(source, block=0), draws(source, block=1)
    assert not torch.equal(first, second)
    together = torch.cat([first, second], 1)
    centre = first[:, :1]
    assert float((together - centre).abs().max()) < 1e-3 * budget.radius
    assert float((centre[0] - centre[1]).abs().max()) > 0.1 * budget.radius / 4


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_point_is_one_step_up_from_a_random_one(budget: Budget) -> None:
    """A linear classifier has one direction of ascent: away from the class of the input."""
    step = 0.25
    here = draws(WeakAdversary(budget, variance=TINY, step=step))[:, 0]
    start = draws(WeakAdversary(budget, variance=TINY, step=1e-9))[:, 0]
    _, y = DATA.evaluate.batch(np.arange(20))
    sign = (2.0 * y - 1.0).view(-1, 1, 1, 1)  # class 0 is where w.x > 0, so it goes along -w
    ascent = budget.norm.steepest(sign * half_classifier().w.detach())
    expected = budget.clip(start + step * budget.radius * ascent)
    assert torch.allclose(here, expected, atol=1e-4 * budget.radius)


def test_a_whole_diameter_ends_at_the_worst_corner() -> None:
    """From anywhere in the ball a step of two radii leads to `r sign`, which is FGSM's answer."""
    budget = Budget.linf(0.1)
    delta = draws(WeakAdversary(budget, variance=TINY, step=2.0))
    _, y = DATA.evaluate.batch(np.arange(20))
    sign = (2.0 * y - 1.0).view(-1, 1, 1, 1, 1) * half_classifier().w.detach()
    assert torch.allclose(delta, 0.1 * sign.expand_as(delta), atol=1e-4)


@pytest.mark.parametrize("variance", [0.1, 0.4])
@pytest.mark.parametrize("budget", [Budget.linf(50.0), Budget.l2(5000.0)], ids=str)
def test_the_variance_is_that_of_a_pixel_in_every_norm(budget: Budget, variance: float) -> None:
    """Around points that are far from the edge of a huge ball nothing is projected."""
    source = WeakAdversary(budget, variance=variance, step=1e-6)
    found = torch.cat([draws(source, block) for block in range(4)], 1)
    if budget.norm.name == "linf":  # each pixel has an edge of its own
        pixels = found.movedim(1, -1).flatten(0, -2)
        pixels = pixels[pixels.abs().amax(1) < 45].double()
    else:
        pixels = found[budget.size(found).amax(1) < 4990].movedim(1, -1).flatten(0, -2).double()
    assert len(pixels) > 100
    std = float(pixels.var(1).mean().sqrt())
    error = math.sqrt(variance / (2 * pixels.shape[0] * (pixels.shape[1] - 1)))
    assert abs(std - math.sqrt(variance)) < 4 * error


def test_it_is_worse_than_noise_and_read_as_pr() -> None:
    budget = Budget.linf(0.1)
    data = two_class_data(200)
    weak, uniform = (
        measure(source, Classifier(half_classifier()), data.evaluate, draws=20)
        for source in (WeakAdversary(budget, variance=1e-4), Uniform(budget))
    )
    assert weak.rates.mean() < uniform.rates.mean() - 0.02
    assert weak.draws == 20
    clean = measure(Clean(), Classifier(half_classifier()), data.evaluate)
    rows = rows_of(WeakAdversary(budget, variance=1e-4), weak, clean, 0.95, 0)
    last = [Metric.NORMALISED_ACCURACY, *[Metric.PROB_ACC] * 4]
    assert [row.metric for row in rows] == [Metric.PR] * 5 + last
    assert rows[0].value == weak.headline_rates.mean()
    assert {row.source for row in rows} == {"weak-adversary:variance=0.0001"}


def test_one_gradient_a_block_is_all_it_costs() -> None:
    """An input of 40 draws has three blocks, each with its gradient: 43 images."""
    part = evaluate_part(torch.full((3, 1, 1, 1), 0.9), [0, 0, 0])
    classifier = Classifier(Linear(torch.ones(1), -0.5))
    source = WeakAdversary(Budget.linf(0.1))
    tally = measure(source, classifier, part, classes=2, draws=40)
    assert tally.calls == 3 * (40 + 3)
    assert source.cost >= tally.calls / (3 * 40)


@pytest.mark.parametrize("option", ["variance", "step"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_bad_options_are_named(option: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"`{option}` must be a number > 0"):
        WeakAdversary(Budget.linf(0.1), **{option: value})
