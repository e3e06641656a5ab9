"""PGD on linear classifiers, whose AR is known exactly, and its bookkeeping."""

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import Linear, evaluate_part
from nppr.budget import Budget
from nppr.classifiers import Classifier
from nppr.errors import GradientError, SpecError
from nppr.measure import measure
from nppr.sources import PGD


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_ar_of_a_linear_classifier_is_exact(norm: str) -> None:
    """An input breaks iff its margin is at most r |w| in the dual norm."""
    torch.manual_seed(0)
    w = torch.randn(1, 4, 4)
    budget = Budget.parse(norm, 0.1)
    reach = 0.1 * float(w.abs().sum() if norm == "linf" else w.norm())
    shares = np.array([0.02, 0.5, 0.9, 0.98, 1.02, 1.1, 1.5])
    images = 0.5 + (w / w.pow(2).sum()) * torch.tensor(shares * reach).view(-1, 1, 1, 1)
    assert float((images - 0.5).abs().max()) < 0.4  # no clipping
    classifier = Classifier(Linear(w, -0.5 * float(w.sum())))
    for source in (PGD(budget), PGD(budget, steps=40, step=0.1), PGD(budget, random_start=False)):
        tally = measure(source, classifier, evaluate_part(images, [0] * 7), classes=2)
        assert tally.clean_correct.all()
        assert (tally.right == 0).tolist() == (shares < 1).tolist(), source.name
        assert tally.draws == 1


def test_range_limits_the_attack() -> None:
    """At x = 0 the attack cannot go below 0."""
    classifier = Classifier(Linear(torch.ones(1), 0.05))
    tally = measure(
        PGD(Budget.linf(0.2)), classifier, evaluate_part(torch.zeros(1, 1, 1, 1), [0]), classes=2
    )
    assert tally.right.tolist() == [1]


def narrow(x: Tensor) -> Tensor:
    """Wrong only in a narrow band around 0.6, with a gradient that leads past it."""
    at = x.flatten(1)[:, 0]
    margin = torch.where((at - 0.6).abs() < 0.03, -1 - at, 2 - at)
    return torch.stack([margin, torch.zeros_like(margin)], 1)


def test_any_visited_point_counts_and_restarts_help() -> None:
    images = torch.full((200, 1, 1, 1), 0.5)
    part = evaluate_part(images, [0] * 200)
    budget = Budget.linf(0.2)
    # Steps of 0.1 from 0.5 visit 0.6 and end at 0.7, where the answer is right again.
    straight = PGD(budget, steps=5, step=0.5, random_start=False)
    assert measure(straight, Classifier(narrow), part, classes=2).right.sum() == 0
    one, many = (
        int(
            measure(PGD(budget, 1, 0.25, restarts), Classifier(narrow), part, classes=2).right.sum()
        )
        for restarts in (1, 8)
    )
    assert 0 < many < one


def test_broken_inputs_cost_no_more_calls() -> None:
    images = torch.tensor([0.45, 0.9]).view(2, 1, 1, 1)
    classifier = Classifier(Linear(torch.ones(1), -0.5))
    source = PGD(Budget.linf(0.1), steps=10, random_start=False)
    tally = measure(source, classifier, evaluate_part(images, [0, 0]), classes=2)
    # The first is wrong at once: 1 call and its check. The second takes 10 steps, an end and a check.
    assert tally.calls == 2 + 12


def test_a_model_without_gradients_is_named() -> None:
    def steps(x: Tensor) -> Tensor:
        at = (x.detach().flatten(1)[:, 0] > 0.5).float()
        return torch.stack([at, 1 - at], 1)

    with pytest.raises(GradientError, match="'steps' gives no gradients"):
        measure(
            PGD(Budget.linf(0.1)),
            Classifier(steps),
            evaluate_part(torch.full((2, 1, 1, 1), 0.6), [0, 1]),
            classes=2,
        )


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"steps": 0}, "steps"),
        ({"restarts": 0}, "restarts"),
        ({"step": 0.0}, "step"),
        ({"step": float("nan")}, "step"),
        ({"restarts": 2, "random_start": False}, "restarts"),
    ],
)
def test_bad_options_are_named(options: dict[str, int], name: str) -> None:
    with pytest.raises(SpecError, match=f"`{name}`"):
        PGD(Budget.linf(0.1), **options)  # type: ignore[arg-type]
