import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import Linear
from nppr.budget import Budget
from nppr.classifiers import Classifier
from nppr.classifiers.training import Adversary, Optimiser, TrainSettings
from nppr.classifiers.training.training_updates import (
    adversarial,
    build_optimiser,
    relative_rate,
    set_rate,
    start_draws,
)
from nppr.classifiers.zoo import ZOO

SIDE = 8
POSITIONS = np.arange(16)
X = torch.rand(16, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
Y = torch.arange(16) % 10


def attacked(classifier: Classifier, adversary: Adversary, epoch: int = 1) -> torch.Tensor:
    draws = start_draws(0, epoch, POSITIONS, X)
    return adversarial(classifier, X, Y % 2, adversary, draws)


@pytest.mark.parametrize("budget", [Budget.linf(0.1), Budget.l2(0.5)], ids=str)
def test_the_attack_stays_in_the_budget_and_raises_the_loss(budget: Budget) -> None:
    torch.manual_seed(0)
    classifier = Classifier(ZOO["digits-cnn"].build(10, 1), mean=[0.3], std=[0.4])
    found = attacked(classifier, Adversary(budget))
    assert bool(budget.contains(found - X).all())
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    assert classifier.module is not None
    classifier.module.eval()
    before = F.cross_entropy(classifier.forward(X), Y % 2)
    assert F.cross_entropy(classifier.forward(found), Y % 2) > before


def test_a_linear_network_is_attacked_at_the_corner_of_the_ball() -> None:
    w = torch.randn(1, SIDE, SIDE, generator=torch.Generator().manual_seed(2))
    found = attacked(Classifier(Linear(w, 0.0)), Adversary(Budget.linf(0.1)))
    away = (1 - 2 * (1 - Y % 2)).view(-1, 1, 1, 1) * w.sign()
    assert torch.allclose(found, (X + 0.1 * away).clamp(0, 1), atol=1e-6)


def test_the_network_and_its_modes_are_left_alone() -> None:
    module = ZOO["digits-cnn"].build(10, 1).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    attacked(Classifier(module), Adversary(Budget.linf(0.1), steps=2))
    assert all(layer.training for layer in module.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_start_depends_on_seed_epoch_and_image() -> None:
    def start(epoch: int, positions: list[int]) -> torch.Tensor:
        draws = start_draws(0, epoch, np.array(positions), X)
        return Budget.linf(0.1).uniform(draws, "pgd-training", (1, 2, 2))[:, 0]

    assert torch.equal(start(1, [3, 4])[1], start(1, [4])[0])
    assert not torch.equal(start(1, [4]), start(2, [4]))


@pytest.mark.parametrize(
    ("done", "warm_up", "expected"),
    [
        (0.0, 0.5, 0.0),
        (0.25, 0.5, 0.5),
        (0.5, 0.5, 1.0),
        (0.75, 0.5, 0.5),
        (1.0, 0.5, 0.0),
        (0.0, 0.0, 1.0),
        (1 / 3, 0.0, 0.75),
    ],
)
def test_linear_up_then_cosine_down(done: float, warm_up: float, expected: float) -> None:
    assert relative_rate(done, warm_up) == pytest.approx(expected)


def test_rates_are_taken_at_the_middle_of_a_step() -> None:
    settings = TrainSettings(learning_rate=2.0, warm_up=0.5)
    optimiser = build_optimiser(nn.Linear(1, 1).parameters(), settings)
    rates = []
    for step in range(4):
        set_rate(optimiser, settings, step, steps=4)
        rates.append(optimiser.param_groups[0]["lr"])
    assert rates[:2] == [0.5, 1.5]
    assert rates[2] + rates[3] == pytest.approx(2.0)
    assert min(rates) > 0


def test_the_optimisers_have_their_settings() -> None:
    layer = nn.Linear(1, 1)
    sgd = build_optimiser(layer.parameters(), TrainSettings(momentum=0.7, weight_decay=0.3))
    assert isinstance(sgd, torch.optim.SGD)
    assert (sgd.defaults["momentum"], sgd.defaults["weight_decay"]) == (0.7, 0.3)
    adam = build_optimiser(layer.parameters(), TrainSettings(optimiser=Optimiser.ADAM))
    assert isinstance(adam, torch.optim.AdamW)
