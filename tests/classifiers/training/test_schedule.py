import pytest
import torch
from torch import nn

from nppr.classifiers.training import Optimiser, TrainSettings
from nppr.classifiers.training.schedule import build_optimiser, rate, set_rate


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
    assert rate(done, warm_up) == pytest.approx(expected)


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
