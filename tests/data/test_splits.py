from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nppr.data import StoredImages
from nppr.data.splits import Labelled, assemble, choose_splits, three_way
from nppr.errors import DataError, SpecError


@pytest.mark.parametrize(
    ("available", "split", "chosen"),
    [
        (["train", "test"], None, ("train", "test")),
        (["train", "test", "validation"], None, ("train", "test")),
        (["train", "val"], None, ("train", "val")),
        (["training", "testing"], None, ("training", "testing")),
        (["train", "extra"], None, ("train",)),
        (["train"], None, ("train",)),
        (["anything"], None, ("anything",)),
        (["train", "test", "val"], "val", ("train", "val")),
        (["train", "test"], "train", ("train",)),
        (["train", "extra"], "extra", ("train", "extra")),
        (["test", "val"], "val", ("val",)),
    ],
)
def test_the_rule(available: list[str], split: str | None, chosen: tuple[str, ...]) -> None:
    assert choose_splits(available, split) == chosen


def test_bad_choices_are_named() -> None:
    with pytest.raises(SpecError, match=r"one of test, train, got 'tset'. Did you mean 'test'"):
        choose_splits(["train", "test"], "tset")
    with pytest.raises(DataError, match="--split test"):
        choose_splits(["val", "test"], None)
    with pytest.raises(DataError, match="got none"):
        choose_splits([], None)


def labelled(count: int, classes: int) -> Labelled:
    return Labelled(StoredImages(torch.rand(count, 1, 2, 2).numpy()), np.arange(count) % classes)


def test_own_train_split_gives_fit_and_select() -> None:
    splits = {"train": labelled(100, 5), "test": labelled(10, 5)}
    data = assemble("made", splits)
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [80, 20, 10]
    assert np.bincount(data.fit.labels).tolist() == [16] * 5
    assert np.bincount(data.select.labels).tolist() == [4] * 5
    both = np.concatenate([data.fit.indices, data.select.indices])
    assert sorted(both.tolist()) == list(range(100))
    assert data.evaluate.indices.tolist() == list(range(10))
    assert data.fit.images is splits["train"].images
    assert data.evaluate.images is splits["test"].images
    again = assemble("made", splits)
    assert np.array_equal(again.fit.indices, data.fit.indices)


@pytest.mark.parametrize(
    ("train", "test", "names", "message"),
    [
        (labelled(0, 2), labelled(4, 2), None, "got none in the train split"),
        (labelled(4, 2), labelled(4, 3), ("a", "b"), r"0\.\.1, got 0\.\.2 in the test split"),
        (labelled(4, 1), labelled(4, 1), None, "at least 2 classes"),
    ],
)
def test_bad_splits_are_named(
    train: Labelled, test: Labelled, names: tuple[str, ...] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        assemble("made", {"train": replace(train, class_names=names), "test": test})


def test_words_are_numbered_over_both_splits() -> None:
    images = StoredImages(torch.rand(3, 1, 2, 2).numpy())
    read = {"train": Labelled(images, ["b", "c", "b"]), "test": Labelled(images, ["a", "b", "c"])}
    data = assemble("made", read)
    assert data.class_names == ("a", "b", "c")
    assert data.evaluate.labels.tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="numbers in train and words in test"):
        assemble("made", {**read, "train": labelled(3, 2)})


@given(st.lists(st.integers(0, 4), min_size=1, max_size=80))
def test_three_way_is_a_partition(labels: list[int]) -> None:
    positions = three_way(np.array(labels), (0.5, 0.2))
    assert sorted(np.concatenate(positions).tolist()) == list(range(len(labels)))
