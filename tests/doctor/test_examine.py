from __future__ import annotations

from dataclasses import replace

import torch

from doctor.test_normalisation import Bands, bands
from helpers import evaluate_part, half_classifier, two_class_data
from nppr.data import Data, from_arrays
from nppr.doctor import examine
from nppr.doctor.flags import (
    FEW_INPUTS,
    LOOK_SCALED,
    NEAR_CHANCE,
    NORMALISATION,
    OUT_OF_RANGE,
    OVERLAP,
)
from nppr.models import Classifier


def ids(data: Data) -> list[str]:
    return [flag.id for flag in examine(Classifier(half_classifier().eval()), data)]


def test_flags_of_splits_model_and_accuracy_come_together() -> None:
    assert ids(two_class_data(60)) == []
    assert ids(two_class_data(20)) == [FEW_INPUTS]
    images = torch.rand(400, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(400) % 2
    assert ids(from_arrays(images, labels)) == [NEAR_CHANCE]
    copies = images[:20].repeat(20, 1, 1, 1)
    assert OVERLAP in ids(from_arrays(copies, labels))
    assert ids(from_arrays(images / 255, labels)) == [LOOK_SCALED, NEAR_CHANCE]


def test_pixels_that_no_measurement_would_accept_are_flagged() -> None:
    data = two_class_data()
    split = evaluate_part(torch.randn(20, 1, 4, 4), [0, 1] * 10)
    assert ids(replace(data, evaluate=split)) == [OUT_OF_RANGE]


def test_a_forgotten_normalisation_is_found() -> None:
    found = examine(Classifier(Bands(0.5, 0.5)), bands())
    assert NORMALISATION in [flag.id for flag in found]
    found = examine(Classifier(Bands(0.5, 0.5), mean=0.5, std=0.5), bands())
    assert NORMALISATION not in [flag.id for flag in found]
