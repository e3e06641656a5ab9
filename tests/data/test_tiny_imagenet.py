from pathlib import Path

import numpy as np
import pytest

from data import layouts
from nppr.data import load_data
from nppr.errors import DataError


@pytest.mark.parametrize("form", ["folder", "parent", "zip"])
def test_it_is_read_back_exactly(tmp_path: Path, form: str) -> None:
    folder, train, val = layouts.tiny_imagenet(tmp_path)
    data = load_data({"folder": folder, "parent": tmp_path, "zip": layouts.zipped(folder)}[form])
    assert data.class_names == ("fish, carp", "toad", "n03")
    found, known = layouts.learned(data)
    assert np.array_equal(found, train)
    assert known.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert np.array_equal(layouts.eight_bit(layouts.whole(data)["evaluate"]), val)
    assert data.evaluate.labels.tolist() == [2, 0, 1, 2, 0, 1]
    assert len(data.fit) == 12


def test_names_are_numbers_without_words(tmp_path: Path) -> None:
    folder, _, _ = layouts.tiny_imagenet(tmp_path)
    (folder / "words.txt").unlink()
    assert load_data(folder).class_names == ("n01", "n02", "n03")


def test_the_train_split_alone_is_divided_three_ways(tmp_path: Path) -> None:
    data = load_data(layouts.tiny_imagenet(tmp_path)[0], split="train", resize=4)
    assert len(data.fit) + len(data.select) + len(data.evaluate) == 15
    assert data.fit.images is data.evaluate.images
    assert layouts.whole(data)["evaluate"].shape[1:] == (3, 4, 4)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("val/images/val_3.JPEG", None, "val_3.JPEG is missing"),
        ("val/val_annotations.txt", None, "val_annotations.txt is missing"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn01\n", "no line for .*val_1.JPEG"),
        ("val/val_annotations.txt", b"val_0.JPEG\n", "a file name and a class"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn09\n", "'n09'"),
        ("val/val_annotations.txt", b"\xff\xfe", "val_annotations.txt: "),
        ("wnids.txt", b"n01\nn02\n", "'n03'"),
        ("wnids.txt", b"n01\nn02\nn03\nn03\n", "twice"),
        ("wnids.txt", b"n01\nn02\nn03\nn04\n", "n04.* has no images"),
        ("train/n01/images/n01_0.JPEG", b"GIF89a", "n01_0.JPEG"),
        ("train/n01/images/n01_0.JPEG", b"", "n01_0.JPEG"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damage_is_named(
    tmp_path: Path, name: str, content: bytes | None, message: str, packed: bool
) -> None:
    folder, _, _ = layouts.tiny_imagenet(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        layouts.whole(load_data(layouts.zipped(folder) if packed else folder))
