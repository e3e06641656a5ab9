from typing import Any

import pytest

from nppr.core.budget import Budget
from nppr.errors import SpecError
from nppr.models.zoo import ZOO
from nppr.train import Adversary, Method, Optimiser, TrainSettings, default_training

BAD: list[tuple[str, Any]] = [
    ("epochs", 0),
    ("batch_size", 0),
    ("crop", -1),
    ("threads", 0),
    ("learning_rate", 0.0),
    ("learning_rate", float("nan")),
    ("learning_rate", float("inf")),
    ("weight_decay", -1e-4),
    ("momentum", 1.0),
    ("warm_up", 1.0),
    ("label_smoothing", -0.1),
    ("sigma", 0.0),
    ("sigma", float("inf")),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_settings_are_named(name: str, value: Any) -> None:
    option = name.replace("_", "-")
    with pytest.raises(SpecError, match=f"`{option}` must be .* got {value}"):
        TrainSettings(**{name: value})


def test_a_bad_attack_is_named() -> None:
    with pytest.raises(SpecError, match="`attack-steps`"):
        Adversary(Budget.linf(0.1), steps=0)
    with pytest.raises(SpecError, match="`attack-step`"):
        Adversary(Budget.linf(0.1), step=0.0)


def test_noise_and_an_attack_exclude_each_other() -> None:
    with pytest.raises(SpecError, match="`sigma` must be given without an adversary"):
        TrainSettings(sigma=0.25, adversary=Adversary(Budget.linf(0.1)))


def test_every_choice_is_described() -> None:
    plain = TrainSettings().describe()
    assert plain["method"] == Method.STANDARD
    assert plain["momentum"] == 0.9
    assert not {"eps", "sigma"} & plain.keys()
    noisy = TrainSettings(sigma=0.25).describe()
    assert (noisy["method"], noisy["sigma"]) == (Method.GAUSSIAN, 0.25)
    attacked = TrainSettings(
        optimiser=Optimiser.ADAM, adversary=Adversary(Budget.l2(0.5))
    ).describe()
    assert "momentum" not in attacked
    assert {name: attacked[name] for name in ("method", "norm", "eps", "attack-steps")} == {
        "method": "pgd", "norm": "l2", "eps": 0.5, "attack-steps": 10,
    }  # fmt: skip


@pytest.mark.parametrize("name", ZOO)
def test_every_network_has_defaults_for_its_images(name: str) -> None:
    colour, grey = default_training(name, (3, 32, 32)), default_training(name, (1, 8, 8))
    assert (colour.crop, colour.flip) == (4, True)
    assert (grey.crop, grey.flip) == (1, False)
    sgd = default_training(name, (3, 32, 32), Optimiser.SGD)
    adam = default_training(name, (3, 32, 32), Optimiser.ADAM)
    assert sgd.learning_rate > adam.learning_rate


def test_an_unknown_network_is_named() -> None:
    with pytest.raises(SpecError, match="Did you mean 'digits-cnn'"):
        default_training("digits-cn", (1, 8, 8))
