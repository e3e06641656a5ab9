import numpy as np
import pytest
import torch

from nppr.data import TensorImages
from nppr.data.parts import Labelled, Plan, assemble, choose_parts
from nppr.errors import DataError, SpecError


@pytest.mark.parametrize(
    ("available", "split", "plan"),
    [
        (["train", "test"], None, Plan("test", "train")),
        (["train", "test", "validation"], None, Plan("test", "train")),
        (["train", "val"], None, Plan("val", "train")),
        (["training", "testing"], None, Plan("testing", "training")),
        (["train", "extra"], None, Plan("train")),
        (["train"], None, Plan("train")),
        (["anything"], None, Plan("anything")),
        (["train", "test", "val"], "val", Plan("val", "train")),
        (["train", "test"], "train", Plan("train")),
        (["train", "extra"], "extra", Plan("extra", "train")),
        (["test", "val"], "val", Plan("val")),
    ],
)
def test_the_rule(available: list[str], split: str | None, plan: Plan) -> None:
    assert choose_parts(available, split) == plan


def test_bad_choices_are_named() -> None:
    with pytest.raises(SpecError, match=r"one of test, train, got 'tset'. Did you mean 'test'"):
        choose_parts(["train", "test"], "tset")
    with pytest.raises(DataError, match="--split test"):
        choose_parts(["val", "test"], None)
    with pytest.raises(DataError, match="got none"):
        choose_parts([], None)


def labelled(count: int, classes: int) -> Labelled:
    return Labelled(TensorImages(torch.rand(count, 1, 2, 2)), np.arange(count) % classes)


def test_own_train_part_gives_fit_and_select() -> None:
    parts = {"train": labelled(100, 5), "test": labelled(10, 5)}
    data = assemble("made", Plan("test", "train"), parts)
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [80, 20, 10]
    assert np.bincount(data.fit.labels).tolist() == [16] * 5
    assert np.bincount(data.select.labels).tolist() == [4] * 5
    both = np.concatenate([data.fit.indices, data.select.indices])
    assert sorted(both.tolist()) == list(range(100))
    assert data.evaluate.indices.tolist() == list(range(10))
    assert data.fit.images is parts["train"].images
    assert data.evaluate.images is parts["test"].images
    again = assemble("made", Plan("test", "train"), parts)
    assert np.array_equal(again.fit.indices, data.fit.indices)


@pytest.mark.parametrize(
    ("train", "test", "names", "message"),
    [
        (labelled(0, 2), labelled(4, 2), None, "got none in the train part"),
        (labelled(4, 2), labelled(4, 3), ("a", "b"), r"0\.\.1, got 0\.\.2 in the test part"),
        (labelled(4, 1), labelled(4, 1), None, "at least 2 classes"),
    ],
)
def test_bad_parts_are_named(
    train: Labelled, test: Labelled, names: tuple[str, ...] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        assemble("made", Plan("test", "train"), {"train": train, "test": test}, names)
