"""A normalisation that is clearly better than the stated one is flagged, and only then."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nppr.data import Data, from_arrays
from nppr.doctor.flags import NORMALISATION
from nppr.doctor.normalisation import COMMON, check_normalisation
from nppr.models import Classifier


class Bands(nn.Module):
    """Ten classes by the mean of what it is given, in bands of [0, 1] after its own normalisation."""

    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, x: Tensor) -> Tensor:
        brightness = (x.mean((1, 2, 3)) * self.std + self.mean)[:, None]
        centres = torch.linspace(0.05, 0.95, 10)
        return -((brightness - centres) ** 2)


def bands(inputs: int = 300, channels: int = 3) -> Data:
    labels = torch.arange(inputs) % 10
    x = (0.05 + 0.1 * labels.float())[:, None, None, None].expand(-1, channels, 4, 4)
    return from_arrays(x.contiguous(), labels, shares=(0.0, 0.0))


@pytest.mark.parametrize("name", COMMON)
def test_the_right_normalisation_is_named(name: str) -> None:
    mean, std = COMMON[name]
    data = bands(channels=3 if mean and len(mean) == 3 else 1)
    own = (
        (0.0, 1.0) if mean is None or std is None else (sum(mean) / len(mean), sum(std) / len(std))
    )
    model = Bands(*own)
    wrong = {} if mean is not None else {"mean": 0.3, "std": 0.2}
    (found,) = check_normalisation(Classifier(model, **wrong), data)  # type: ignore[arg-type]
    assert found.id == NORMALISATION
    right = Classifier(model, mean=mean, std=std)
    assert list(check_normalisation(right, data)) == []


@pytest.mark.parametrize(
    ("own", "advice"),
    [
        ((0.5, 0.5), "--mean 0.5 --std 0.5"),
        ((0.0, 1 / 255), "--mean 0 --std 0.003922"),
    ],
)
def test_the_message_has_the_numbers_to_give(own: tuple[float, float], advice: str) -> None:
    (found,) = check_normalisation(Classifier(Bands(*own)), bands(channels=1))
    assert advice in found.message


def test_a_few_inputs_show_nothing() -> None:
    assert list(check_normalisation(Classifier(Bands(0.5, 0.5)), bands(8))) == []


def test_normalisations_that_a_model_refuses_are_left_out() -> None:
    class Refusing(Bands):
        def forward(self, x: Tensor) -> Tensor:
            if float(x.min()) < -1.5:
                raise ValueError("not an image")
            return super().forward(x)

    (found,) = check_normalisation(Classifier(Refusing(0.5, 0.5)), bands())
    assert "pixels from -1 to 1" in found.message
