from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data import layouts
from nppr.core.tally import Evaluate, Fit, IntArray, Select
from nppr.data import Data, Split, StoredImages, from_arrays, load_data, overlaps, stratified_order
from nppr.errors import DataError, SpecError


def test_limits_are_seeded_nested_and_stratified() -> None:
    data = load_data("digits")
    small = data.limit(inputs=50, fit_inputs=20, select_inputs=10, seed=3)
    assert [len(split) for split in (small.evaluate, small.fit, small.select)] == [50, 20, 10]
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


def split(images: torch.Tensor) -> Split[Evaluate]:
    return Split(
        Evaluate, StoredImages(images.numpy()), np.arange(len(images)), np.zeros(len(images), int)
    )


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
        split(images).batch(np.arange(4))
    with pytest.raises(DataError, match=message):
        from_arrays(images, [0, 1, 0, 1])


def test_rounding_is_clamped() -> None:
    x, _ = split(torch.full((1, 1, 2, 2), 1 + 5e-7)).batch(np.array([0]))
    assert float(x.max()) == 1.0


def test_fingerprint_sees_images_labels_and_indices() -> None:
    images = torch.rand(4, 1, 2, 2)
    base = split(images)
    prints = {
        base.fingerprint(),
        split(images * 0.5).fingerprint(),
        Split(Evaluate, base.images, base.indices, base.labels + 1).fingerprint(),
        Split(Evaluate, base.images, base.indices[::-1].copy(), base.labels).fingerprint(),
    }
    assert len(prints) == 4
    assert base.fingerprint() == split(images.clone()).fingerprint()


labels = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(
    lambda values: np.array(values, dtype=np.int64)
)


@given(labels, st.integers(0, 100))
def test_every_prefix_is_stratified(y: IntArray, seed: int) -> None:
    order = stratified_order(y, np.arange(len(y)), seed)
    assert sorted(order.tolist()) == list(range(len(y)))
    for size in range(1, len(y) + 1):
        for label in np.unique(y):
            expected = size * (y == label).mean()
            assert abs((y[order[:size]] == label).sum() - expected) <= len(np.unique(y)) / 2 + 0.5


def test_seeds_give_other_orders_and_indices_decide() -> None:
    y = np.zeros(50, dtype=np.int64)
    first = stratified_order(y, np.arange(50), 0)
    assert not np.array_equal(first, stratified_order(y, np.arange(50), 1))
    assert np.array_equal(first, stratified_order(y, np.arange(50), 0))
    assert not np.array_equal(first, stratified_order(y, np.arange(50) + 1000, 0))


def data_of(first: torch.Tensor, second: torch.Tensor, third: torch.Tensor) -> Data:
    def zeros(images: torch.Tensor) -> IntArray:
        return np.zeros(len(images), dtype=np.int64)

    return Data(
        name="made",
        class_names=("a", "b"),
        fit=Split(Fit, StoredImages(first.numpy()), np.arange(len(first)), zeros(first)),
        select=Split(Select, StoredImages(second.numpy()), np.arange(len(second)), zeros(second)),
        evaluate=Split(Evaluate, StoredImages(third.numpy()), np.arange(len(third)), zeros(third)),
    )


def test_each_pair_is_counted() -> None:
    x = torch.rand(12, 1, 3, 3)
    data = data_of(x[:6], torch.cat([x[6:8], x[:1]]), torch.cat([x[8:], x[1:3], x[1:2], x[6:7]]))
    assert overlaps(data) == {
        ("fit", "select"): 1,
        ("fit", "evaluate"): 3,
        ("select", "evaluate"): 1,
    }
    assert set(overlaps(from_arrays(x, [0, 1] * 6)).values()) == {0}


@pytest.mark.parametrize("kind", ["tiny", "cifar"])
def test_files_are_compared_as_they_are_stored(tmp_path: Path, kind: str) -> None:
    if kind == "tiny":
        folder, train, _ = layouts.tiny_imagenet(tmp_path)
        layouts.write(folder / "val/images/val_0.JPEG", layouts.encode(train[3]))
    else:
        folder, _, _ = layouts.cifar_10(tmp_path)
        (folder / "test_batch").write_bytes((folder / "data_batch_2").read_bytes())
    found = overlaps(load_data(folder))
    assert found["fit", "evaluate"] + found["select", "evaluate"] == (1 if kind == "tiny" else 6)
    assert found["fit", "select"] == 0


def test_resizing_does_not_change_what_is_compared() -> None:
    x = torch.rand(20, 1, 4, 4)
    x[:10] = x[10:]
    plain = from_arrays(x, torch.arange(20) % 2)
    assert overlaps(plain) == overlaps(load_data(plain, resize=2))
    assert sum(overlaps(plain).values()) > 0
