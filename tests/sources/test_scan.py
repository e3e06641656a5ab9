from __future__ import annotations

import numpy as np
import pytest
import torch

from nppr.core.budget import Budget, perturbed
from nppr.core.random_draws import DrawBlock
from nppr.core.transformations import spread_points
from nppr.data import load_data
from nppr.errors import SpecError
from nppr.models import frozen, load_classifier
from nppr.sources import Scan

DATA = load_data("digits").limit(inputs=60)
BUDGET = Budget.box("rotate=25")


def test_an_input_is_broken_if_any_point_breaks_it() -> None:
    x, y = DATA.evaluate.batch(np.arange(60))
    draws = DrawBlock(0, "evaluate", tuple(range(60)), 0, 1, torch.device("cpu"), 1)
    with frozen(load_classifier("digits-cnn")) as model, torch.no_grad():
        delta = Scan(BUDGET, points=21).perturb(model, x, y, draws)[:, 0]
        found = model.logits(perturbed(x, delta, BUDGET)).argmax(1) == y
        points = spread_points(21, 1).view(-1, 1, 1, 1, 1).expand(-1, 60, 1, 1, 1)
        each = [model.logits(perturbed(x, point, BUDGET)).argmax(1) == y for point in points]
    assert 5 < int(found.sum()) < 55
    assert torch.equal(found, torch.stack(each).all(0))


def test_an_unbroken_input_gets_its_largest_margin() -> None:
    """A classifier that is right while the mean brightness, which it compares, is above 0.1."""

    class Bright(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            mean = images.mean((1, 2, 3))
            return torch.stack([mean, torch.full_like(mean, 0.1)], 1)

    budget = Budget.box("brightness=0.2")
    x, y = torch.full((1, 1, 4, 4), 0.5), torch.zeros(1, dtype=torch.int64)
    draws = DrawBlock(0, "evaluate", (0,), 0, 1, torch.device("cpu"), 1)
    with frozen(load_classifier(Bright())) as model:
        delta = Scan(budget).perturb(model, x, y, draws)
    assert float(delta) == -1


def test_points_must_be_two_or_more() -> None:
    with pytest.raises(SpecError, match="`points` must be a whole number >= 2, got 1"):
        Scan(BUDGET, points=1)
