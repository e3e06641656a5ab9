"""Attacks on linear classifiers, whose AR is known exactly, and the weak adversary."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import Linear, evaluate_part, half_classifier, two_class_data
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Metric
from nppr.data import load_data
from nppr.errors import GradientError, SpecError
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, frozen, load_classifier, prepare
from nppr.sources import CW, PGD, ClassicPGD, Clean, Uniform, WeakAdversary
from nppr.sources.attacks import GradientAttack


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", [PGD, ClassicPGD, CW])
def test_ar_of_a_linear_classifier_is_exact(kind: type[GradientAttack], norm: str) -> None:
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
        (ClassicPGD, Classifier(plain), 0),
        (ClassicPGD, saturated, 1),
        (CW, saturated, 0),
        (PGD, saturated, 0),
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
        for kind in (ClassicPGD, CW):
            source = kind(budget, steps=8, random_start=False)
            found[kind] = source.perturb(model, x, torch.tensor([0]), draws).flatten().tolist()
    assert found[CW] == pytest.approx([0.1, 0.0])
    assert found[ClassicPGD] == pytest.approx([0.1, 0.1])


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
    straight = ClassicPGD(budget, steps=5, step=0.5, random_start=False)
    assert measure(straight, Classifier(narrow), part, classes=2).correct.sum() == 0
    one, many = (
        int(
            measure(
                ClassicPGD(budget, 1, 0.25, restarts), Classifier(narrow), part, classes=2
            ).correct.sum()
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
@pytest.mark.parametrize("kind", [PGD, ClassicPGD, CW])
def test_bad_options_are_named(
    kind: type[GradientAttack], options: dict[str, int], name: str
) -> None:
    with pytest.raises(SpecError, match=f"`{name}`"):
        kind(Budget.linf(0.1), **options)  # type: ignore[arg-type]


BUDGETS = [Budget.linf(0.1), Budget.l2(0.5)]
DATA = two_class_data(20)
TINY = 1e-12


def weak_draws(source: WeakAdversary, block: int = 0, inputs: int = 20) -> Tensor:
    """Perturbations `(inputs, 16, 1, 4, 4)` against `half_classifier`."""
    x, y = DATA.evaluate.batch(np.arange(inputs))
    numbers = DrawBlock(0, "evaluate", tuple(range(inputs)), block, 16, torch.device("cpu"))
    with frozen(Classifier(half_classifier())) as model:
        return source.perturb(model, x, y, numbers)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_weak_draws_lie_in_the_budget_and_differ(budget: Budget) -> None:
    delta = weak_draws(WeakAdversary(budget))
    assert bool(budget.contains(delta).all())
    assert float((delta - delta[:, :1]).abs().amax((2, 3, 4))[:, 1:].min()) > 0


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_all_draws_of_an_input_surround_one_point(budget: Budget) -> None:
    """In the same block and in others; other inputs have other points."""
    source = WeakAdversary(budget, variance=TINY)
    first, second = weak_draws(source, block=0), weak_draws(source, block=1)
    assert not torch.equal(first, second)
    together = torch.cat([first, second], 1)
    centre = first[:, :1]
    assert float((together - centre).abs().max()) < 1e-3 * budget.radius
    assert float((centre[0] - centre[1]).abs().max()) > 0.1 * budget.radius / 4


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_point_is_one_step_up_from_a_random_one(budget: Budget) -> None:
    """A linear classifier has one direction of ascent: away from the class of the input."""
    step = 0.25
    here = weak_draws(WeakAdversary(budget, variance=TINY, step=step))[:, 0]
    start = weak_draws(WeakAdversary(budget, variance=TINY, step=1e-9))[:, 0]
    _, y = DATA.evaluate.batch(np.arange(20))
    sign = (2.0 * y - 1.0).view(-1, 1, 1, 1)  # class 0 is where w.x > 0, so it goes along -w
    ascent = budget.norm.steepest(sign * half_classifier().w.detach())
    expected = budget.clip(start + step * budget.radius * ascent)
    assert torch.allclose(here, expected, atol=1e-4 * budget.radius)


def test_a_whole_diameter_ends_at_the_worst_corner() -> None:
    """From anywhere in the ball a step of two radii leads to `r sign`, which is FGSM's answer."""
    budget = Budget.linf(0.1)
    delta = weak_draws(WeakAdversary(budget, variance=TINY, step=2.0))
    _, y = DATA.evaluate.batch(np.arange(20))
    sign = (2.0 * y - 1.0).view(-1, 1, 1, 1, 1) * half_classifier().w.detach()
    assert torch.allclose(delta, 0.1 * sign.expand_as(delta), atol=1e-4)


@pytest.mark.parametrize("variance", [0.1, 0.4])
@pytest.mark.parametrize("budget", [Budget.linf(50.0), Budget.l2(5000.0)], ids=str)
def test_the_variance_is_that_of_a_pixel_in_every_norm(budget: Budget, variance: float) -> None:
    """Around points that are far from the edge of a huge ball nothing is projected."""
    source = WeakAdversary(budget, variance=variance, step=1e-6)
    found = torch.cat([weak_draws(source, block) for block in range(4)], 1)
    if budget.norm.name == "linf":  # each pixel has an edge of its own
        pixels = found.movedim(1, -1).flatten(0, -2)
        pixels = pixels[pixels.abs().amax(1) < 45].double()
    else:
        pixels = found[budget.size(found).amax(1) < 4990].movedim(1, -1).flatten(0, -2).double()
    assert len(pixels) > 100
    std = float(pixels.var(1).mean().sqrt())
    error = math.sqrt(variance / (2 * pixels.shape[0] * (pixels.shape[1] - 1)))
    assert abs(std - math.sqrt(variance)) < 4 * error


def test_the_weak_adversary_is_worse_than_noise_and_read_as_pr() -> None:
    budget = Budget.linf(0.1)
    data = two_class_data(200)
    weak, uniform = (
        measure(source, Classifier(half_classifier()), data.evaluate, draws=20)
        for source in (WeakAdversary(budget, variance=1e-4), Uniform(budget))
    )
    assert weak.rates.mean() < uniform.rates.mean() - 0.02
    assert weak.draws == 20
    clean = measure(Clean(), Classifier(half_classifier()), data.evaluate)
    rows = WeakAdversary(budget, variance=1e-4).read(weak, clean, 0.95, 0)
    last = [Metric.NORMALISED_ACCURACY, *[Metric.PROB_ACC] * 4]
    assert [row.metric for row in rows] == [Metric.PR] * 5 + last
    assert rows[0].value == weak.headline_rates.mean()


def test_the_weak_adversary_costs_one_gradient_per_block() -> None:
    """An input of 40 draws has three blocks, each with its gradient: 43 images."""
    part = evaluate_part(torch.full((3, 1, 1, 1), 0.9), [0, 0, 0])
    classifier = Classifier(Linear(torch.ones(1), -0.5))
    source = WeakAdversary(Budget.linf(0.1))
    tally = measure(source, classifier, part, classes=2, draws=40)
    assert tally.calls == 3 * (40 + 3)
    assert source.cost >= tally.calls / (3 * 40)


@pytest.mark.parametrize("option", ["variance", "step"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_bad_options_of_the_weak_adversary_are_named(option: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"`{option}` must be a number > 0"):
        WeakAdversary(Budget.linf(0.1), **{option: value})


def test_losses_in_turn_and_a_falling_step_break_more_at_equal_cost() -> None:
    data = load_data("digits").limit(inputs=150)
    ready = prepare(load_classifier("digits-cnn", data=data), probe(data.evaluate), classes=10)
    budget = Budget.linf(0.1)
    for seed in (0, 1):
        tallies = [
            measure(kind(budget), ready, data.evaluate, seed=seed) for kind in (PGD, ClassicPGD)
        ]
        ours, classic = (int(each.unbroken[each.clean_correct].sum()) for each in tallies)
        assert ours < 0.85 * classic
        assert tallies[0].calls < tallies[1].calls
