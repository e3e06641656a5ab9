"""PGD and CW on linear classifiers, whose AR is known exactly, and their bookkeeping."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import Linear, evaluate_part
from nppr.budget import Budget
from nppr.classifiers import Classifier, frozen
from nppr.random_draws import DrawBlock
from nppr.errors import GradientError, SpecError
from nppr.measure import measure
from nppr.sources import CW, PGD
from nppr.sources.attacks import Climb


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", [PGD, CW])
def test_ar_of_a_linear_classifier_is_exact(kind: type[Climb], norm: str) -> None:
    """An input breaks iff its margin is at most r |w| in the dual norm."""
    torch.manual_seed(0)
    w = torch.randn(1, 4, 4)
    budget = Budget.parse(norm, 0.1)
    reach = 0.1 * float(w.abs().sum() if norm == "linf" else w.norm())
    shares = np.array([0.02, 0.5, 0.9, 0.98, 1.02, 1.1, 1.5])
    images = 0.5 + (w / w.pow(2).sum()) * torch.tensor(shares * reach).view(-1, 1, 1, 1)
    assert float((images - 0.5).abs().max()) < 0.4  # no clipping
    classifier = Classifier(Linear(w, -0.5 * float(w.sum())))
    for options in ({}, {"steps": 40, "step": 0.1}, {"random_start": False}):
        source = kind(budget, **options)
        tally = measure(source, classifier, evaluate_part(images, [0] * 7), classes=2)
        assert tally.clean_correct.all()
        assert (tally.correct == 0).tolist() == (shares < 1).tolist(), source.name
        assert tally.draws == 1


def test_range_limits_the_attack() -> None:
    """At x = 0 the attack cannot go below 0."""
    classifier = Classifier(Linear(torch.ones(1), 0.05))
    tally = measure(
        PGD(Budget.linf(0.2)), classifier, evaluate_part(torch.zeros(1, 1, 1, 1), [0]), classes=2
    )
    assert tally.correct.tolist() == [1]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_cw_breaks_a_saturated_classifier_that_pgd_cannot(norm: str) -> None:
    """A thousand times the logits are the same answers, but exp(-200) is 0 in single precision."""
    torch.manual_seed(0)
    w = torch.randn(1, 4, 4)
    reach = 0.1 * float(w.abs().sum() if norm == "linf" else w.norm())
    image = 0.5 + (w / w.pow(2).sum()) * 0.9 * reach
    plain = Linear(w, -0.5 * float(w.sum()))
    saturated = Classifier(lambda x: 1000 * plain(x))
    part = evaluate_part(image[None].expand(5, -1, -1, -1), [0] * 5)
    budget = Budget.parse(norm, 0.1)
    attempts = {"steps": 20, "restarts": 3}
    for kind, known, right in (
        (PGD, Classifier(plain), 0),
        (PGD, saturated, 1),
        (CW, saturated, 0),
    ):
        source = kind(budget, **attempts)  # type: ignore[arg-type]
        tally = measure(source, known, part, classes=2)
        assert tally.clean_correct.all()
        assert tally.correct.tolist() == [right] * 5, source.name


def test_cw_climbs_to_the_nearest_class_and_pgd_away_from_its_own() -> None:
    """Three classes in a plane, of which the third is far: only the runner-up moves CW."""

    class Three(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            at = x.flatten(1)
            return torch.stack([torch.ones_like(at[:, 0]), at[:, 0], at[:, 1] - 0.2], 1)

    x = torch.tensor([0.5, 0.5]).view(1, 1, 1, 2)
    budget, draws = Budget.linf(0.1), DrawBlock(0, "evaluate", (0,), 0, 1, torch.device("cpu"), 1)
    found = {}
    with frozen(Classifier(Three())) as model:
        for kind in (PGD, CW):
            source = kind(budget, steps=8, random_start=False)
            found[kind] = source.perturb(model, x, torch.tensor([0]), draws).flatten().tolist()
    assert found[CW] == pytest.approx([0.1, 0.0])
    assert found[PGD] == pytest.approx([0.1, 0.1])


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
    assert measure(straight, Classifier(narrow), part, classes=2).correct.sum() == 0
    one, many = (
        int(
            measure(PGD(budget, 1, 0.25, restarts), Classifier(narrow), part, classes=2).correct.sum()
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
@pytest.mark.parametrize("kind", [PGD, CW])
def test_bad_options_are_named(kind: type[Climb], options: dict[str, int], name: str) -> None:
    with pytest.raises(SpecError, match=f"`{name}`"):
        kind(Budget.linf(0.1), **options)  # type: ignore[arg-type]
