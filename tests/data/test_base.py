import numpy as np
import pytest
import torch

from nppr.data import Part, TensorImages, from_arrays, load_data
from nppr.errors import DataError, SpecError
from nppr.types import Evaluate


def test_limits_are_seeded_nested_and_stratified() -> None:
    data = load_data("digits")
    small = data.limit(inputs=50, fit_inputs=20, select_inputs=10, seed=3)
    assert [len(part) for part in (small.evaluate, small.fit, small.select)] == [50, 20, 10]
    assert np.bincount(small.evaluate.labels, minlength=10).tolist() == [5] * 10
    larger = data.limit(inputs=100, seed=3)
    assert set(small.evaluate.indices) < set(larger.evaluate.indices)
    assert set(data.limit(inputs=50, seed=4).evaluate.indices) != set(small.evaluate.indices)
    assert len(data.limit(inputs=10_000).evaluate) == 597


@pytest.mark.parametrize("inputs", [0, -5])
def test_no_inputs_is_an_error(inputs: int) -> None:
    with pytest.raises(SpecError, match="`inputs` must be a whole number >= 1"):
        load_data("digits").limit(inputs=inputs)
    with pytest.raises(SpecError, match="`fit-inputs`"):
        load_data("digits").limit(fit_inputs=inputs)


def part(images: torch.Tensor) -> Part[Evaluate]:
    return Part(Evaluate, TensorImages(images), np.arange(len(images)), np.zeros(len(images), int))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, r"must lie in \[0, 1\]"),
        (-0.1, r"must lie in \[0, 1\]"),
        (1 + 1e-5, r"must lie in \[0, 1\]"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
    ],
)
def test_bad_pixels_are_named(value: float, message: str) -> None:
    images = torch.rand(4, 1, 2, 2)
    images[2, 0, 1, 1] = value
    with pytest.raises(DataError, match=message):
        part(images).batch(np.arange(4))
    with pytest.raises(DataError, match=message):
        from_arrays(images, [0, 1, 0, 1])


def test_rounding_is_clamped() -> None:
    x, _ = part(torch.full((1, 1, 2, 2), 1 + 5e-7)).batch(np.array([0]))
    assert float(x.max()) == 1.0


def test_fingerprint_sees_images_labels_and_indices() -> None:
    images = torch.rand(4, 1, 2, 2)
    base = part(images)
    prints = {
        base.fingerprint(),
        part(images * 0.5).fingerprint(),
        Part(Evaluate, base.images, base.indices, base.labels + 1).fingerprint(),
        Part(Evaluate, base.images, base.indices[::-1].copy(), base.labels).fingerprint(),
    }
    assert len(prints) == 4
    assert base.fingerprint() == part(images.clone()).fingerprint()
