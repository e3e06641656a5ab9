from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from data import layouts
from nppr.data import load_data
from nppr.data.image_sets import StoredImages
from nppr.data.torch_datasets import DatasetImages
from nppr.errors import DataError, SpecError

IMAGES = layouts.pixels(20, side=6)


class Pairs(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> Any:
        return self.items[position]


class Stream(IterableDataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def as_image(image: layouts.Pixels, kind: str) -> Any:
    match kind:
        case "float":
            return torch.from_numpy(image).float() / 255
        case "uint8":
            return torch.from_numpy(image)
        case "pillow":
            return Image.fromarray(np.moveaxis(image, 0, -1))
        case _:
            return np.moveaxis(image, 0, -1)


def pairs(kind: str = "uint8") -> list[Any]:
    return [(as_image(image, kind), number % 2) for number, image in enumerate(IMAGES)]


@pytest.mark.parametrize("kind", ["float", "uint8", "pillow", "array"])
@pytest.mark.parametrize("container", [Pairs, Stream])
@pytest.mark.parametrize("loader", [False, True])
def test_pairs_are_read_back_exactly(kind: str, container: Any, loader: bool) -> None:
    dataset = container(pairs(kind))
    data = load_data(DataLoader(dataset, batch_size=3) if loader else dataset)
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [10, 4, 6]
    for split in data.splits:
        x, _ = split.batch(np.arange(len(split)))
        assert np.array_equal(layouts.eight_bit(x), IMAGES[split.indices])
        assert split.labels.tolist() == (split.indices % 2).tolist()


def test_images_are_asked_for_not_kept() -> None:
    data = load_data(Pairs(pairs()))
    assert isinstance(data.fit.images, DatasetImages)
    streamed = load_data(Stream(pairs()))
    assert isinstance(streamed.fit.images, StoredImages)
    assert streamed.fit.images.array.dtype == np.uint8


def test_tensor_dataset_and_grey_images() -> None:
    x = torch.rand(20, 5, 5)
    data = load_data(TensorDataset(x, torch.arange(20) % 4))
    assert data.classes == 4
    assert torch.equal(data.fit.batch(np.arange(10))[0][:, 0], x[data.fit.indices])


def test_mixed_sizes_need_resize() -> None:
    items = [*pairs(), (torch.zeros(3, 9, 9, dtype=torch.uint8), 0)]
    for container in (Pairs, Stream):
        with pytest.raises(DataError, match="9x9 in item 20 where the first is 6x6"):
            load_data(container(items))
        images = layouts.whole(load_data(container(items), resize=4))
        assert {x.shape[1:] for x in images.values()} == {(3, 4, 4)}


def test_names_of_the_classes_are_taken() -> None:
    dataset = Pairs(pairs())
    dataset.classes = ["cat", "dog"]  # type: ignore[attr-defined]
    assert load_data(dataset).class_names == ("cat", "dog")


class Random(Pairs):
    def __getitem__(self, position: int) -> Any:
        return torch.rand(1, 2, 2), position % 2


class Failing(Pairs):
    def __getitem__(self, position: int) -> Any:
        raise KeyError("no such\nitem")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Pairs([]), "empty Dataset"),
        (Stream([]), "empty Dataset"),
        (Pairs([{"image": 1}]), "pairs .image, label., got dict in item 0"),
        (Pairs([(torch.rand(1, 2, 2), 0.5)]), "whole numbers, got 0.5"),
        (Pairs([("a.png", 0)]), "got str in item 0"),
        (Pairs([(torch.zeros(1, 2, 2, dtype=torch.long), 0)]), "8-bit .uint8. or floats"),
        (Pairs([(torch.zeros(1, 4, 4), 0), (torch.zeros(3, 4, 4), 1)]), "1 channels, got 3 in item 1"),
        (Pairs([(torch.zeros(1, 2, 2), label) for label in (0, 1, -3)]), r"got -3\.\.1"),
        (Random([0] * 9), "the same image every time"),
        (Failing([0]), "item 0 of the Dataset: 'no such"),
    ],
)  # fmt: skip
def test_bad_datasets_are_named(dataset: Dataset[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_data(dataset)


def test_a_dataset_has_no_splits_to_choose() -> None:
    with pytest.raises(SpecError, match="`split`"):
        load_data(Pairs(pairs()), split="test")


def test_normalised_images_are_refused() -> None:
    items = [(torch.full((1, 2, 2), -1.5), label % 2) for label in range(8)]
    with pytest.raises(DataError, match=r"must lie in \[0, 1\]"):
        layouts.whole(load_data(Pairs(items)))
