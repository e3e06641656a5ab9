"""Arrays as people have them: what is converted is right and noted, the rest is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from data import layouts
from nppr.data import from_arrays, load_data
from nppr.errors import DataError

GREY = np.arange(10 * 8 * 8, dtype=np.uint8).reshape(10, 8, 8)
BINARY = np.arange(10) % 2


def test_splits_are_disjoint_and_hold_everything() -> None:
    data = from_arrays(torch.rand(100, 3, 4, 4), torch.arange(100) % 5)
    splits = [data.fit.indices, data.select.indices, data.evaluate.indices]
    assert [len(split) for split in splits] == [50, 20, 30]
    assert sorted(np.concatenate(splits).tolist()) == list(range(100))
    assert data.classes == 5


def test_classes_that_the_labels_do_not_show() -> None:
    data = from_arrays(torch.rand(10, 1, 2, 2), np.arange(10) % 2, classes=7)
    assert data.classes == 7
    with pytest.raises(DataError, match=r"0\.\.1"):
        from_arrays(torch.rand(10, 1, 2, 2), np.arange(10) % 3, classes=2)


def test_everything_can_be_evaluated() -> None:
    data = from_arrays(torch.rand(10, 1, 2, 2), np.arange(10) % 2, shares=(0, 0))
    assert len(data.evaluate) == 10
    assert len(data.fit) == len(data.select) == 0


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.rand(0, 1, 2, 2), [], "`labels` must be whole numbers|at least one input"),
        (torch.rand(0, 1, 2, 2), torch.zeros(0, dtype=torch.long), "at least one input"),
        (torch.rand(3, 1, 2, 2), [0, 1], "same length, got 3 and 2"),
        (torch.rand(3, 2, 2), [0, 1, 0], r"shape \(N, C, H, W\)"),
        (torch.rand(3, 1, 2, 2), [0.5, 1.0, 0.0], "whole numbers"),
        (torch.rand(3, 1, 2, 2), [0, -1, 1], r"0\.\.1"),
        (torch.zeros(3, 1, 2, 2, dtype=torch.int64), [0, 1, 0], "Divide by 255"),
        (torch.rand(3, 8, 8, 4), [0, 1, 0], r"looks like .N, H, W, C.*x\.permute\(0, 3, 1, 2\)"),
        ([[1, 2], [3]], [0, 1], r"one tensor or array of numbers, got list.*torch\.stack"),
    ],
)
def test_bad_arrays_are_named(images: torch.Tensor, labels: list[int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_arrays(images, labels)


def test_labels_beyond_the_class_names() -> None:
    with pytest.raises(DataError, match=r"0\.\.1, got .*7"):
        from_arrays(torch.rand(9, 1, 2, 2), [0, 1, 7] * 3, class_names=("a", "b"))


def test_fixed_disjoint_stratified_splits() -> None:
    data = load_data("digits")
    splits = [data.fit.indices, data.select.indices, data.evaluate.indices]
    assert [len(split) for split in splits] == [900, 300, 597]
    assert sorted(np.concatenate(splits).tolist()) == list(range(1797))
    for split in data.splits:
        shares = np.bincount(split.labels, minlength=10) / len(split)
        assert np.abs(shares - 0.1).max() < 0.01


def test_images_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    data, truth = load_data("digits"), load_digits()
    for split in data.splits:
        x, y = split.batch(np.arange(len(split)))
        assert np.array_equal(x[:, 0].numpy() * 16, truth.images[split.indices])
        assert np.array_equal(y.numpy(), truth.target[split.indices])
    assert data.class_names == tuple(map(str, truth.target_names))


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (GREY[:, None], GREY[:, None] / 255),
        (GREY, GREY[:, None] / 255),
        (GREY[..., None], GREY[:, None] / 255),
        (np.stack([GREY] * 3, -1), np.stack([GREY] * 3, 1) / 255),
        (np.stack([GREY[:, :6]] * 3, -1) / 255, np.stack([GREY[:, :6]] * 3, 1) / 255),
    ],
)
def test_images_are_converted_and_noted(images: NDArray[Any], expected: NDArray[Any]) -> None:
    for given in (images, torch.from_numpy(images)):
        data = from_arrays(given, BINARY)
        assert np.allclose(layouts.undivided(data)[0].numpy(), expected, atol=1e-6)
        assert data.notes
        assert all(note.startswith("images: ") for note in data.notes)


@pytest.mark.parametrize("shape", [(10, 3, 8, 8), (10, 1, 8, 1), (10, 16, 4, 4), (10, 22, 99, 1)])
def test_images_that_are_right_stay_as_they_are(shape: tuple[int, ...]) -> None:
    images = torch.rand(shape)
    data = from_arrays(images, BINARY)
    assert torch.equal(layouts.undivided(data)[0], images)
    assert data.notes == ()


@pytest.mark.parametrize("kind", [list, np.array, lambda words: np.array(words, dtype=object)])
def test_words_are_numbered_in_sorted_order(kind: Any) -> None:
    data = from_arrays(torch.rand(10, 1, 2, 2), kind(["dog", "cat"] * 5))
    assert data.class_names == ("cat", "dog")
    assert layouts.undivided(data)[1].tolist() == [1, 0] * 5
    assert "cat = 0, dog = 1" in data.notes[0]


def test_words_in_a_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=GREY, y=np.array(["dog", "cat"] * 5))
    data = load_data(tmp_path / "a.npz")
    assert data.class_names == ("cat", "dog")
    assert layouts.undivided(data)[1].tolist() == [1, 0] * 5


def test_floats_that_are_whole_are_labels() -> None:
    data = from_arrays(torch.rand(10, 1, 2, 2), BINARY.astype(float))
    assert layouts.undivided(data)[1].tolist() == BINARY.tolist()
    assert "floats" in data.notes[0]
