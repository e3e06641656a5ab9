"""The source `patterns` finds the pattern of its dictionary that a classifier is sensitive to."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

import nppr
from nppr.core.budget import Budget
from nppr.data import Data, from_arrays
from nppr.errors import NoFitDataError
from nppr.models import Classifier
from nppr.noise.dictionary import Pattern
from nppr.sources.worst_pattern import Patterns

SHAPE = (1, 8, 8)
WORST = Pattern(3, 2, (1,), phase=0.25)
"""The pattern that the classifier below listens to."""


class Listener(nn.Module):
    """Two classes by the first pixel; it errs as far as an image correlates with the worst pattern."""

    pattern: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pattern", WORST.draw(SHAPE))
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        label = (x[:, 0, 0, 0] > 0.5).float() * 2 - 1
        heard = ((x - 0.5) * self.pattern).flatten(1)[:, 1:].mean(1)
        margin = label * (0.07 - heard) + 0 * self.anchor
        return torch.stack([-margin, margin], 1)


@cache
def data() -> Data:
    images = torch.full((90, *SHAPE), 0.5)
    labels = torch.arange(90) % 2
    images[:, 0, 0, 0] += 0.4 * (2 * labels - 1).float()
    return from_arrays(images, labels, shares=(0.4, 0.3))


@pytest.mark.parametrize("budget", [Budget.linf(0.08), Budget.l2(0.08 * 8)])
def test_it_finds_the_worst_pattern(budget: Budget) -> None:
    found = Patterns(budget).fitted_on(Classifier(Listener()), data().fit)
    wanted = budget.radius * budget.norm.steepest(WORST.draw(SHAPE))
    assert torch.allclose(found.delta, wanted, atol=1e-6)


def test_it_is_a_number_of_a_report_and_nothing_is_left_correct() -> None:
    report = nppr.assess(
        Listener(), data(), Budget.linf(0.08), sources="patterns,uniform", progress=False
    )
    found = {
        each.subject.source: each.value for each in report.numbers if each.metric.value == "AR"
    }
    assert found["patterns"] == 0.0


def test_it_must_be_fitted() -> None:
    with pytest.raises(NoFitDataError, match="must be fitted"):
        Patterns(Budget.linf(0.1)).perturb(None, None, None, None)  # type: ignore[arg-type]
