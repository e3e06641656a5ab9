from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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


SWELLING = [
    "wnids.txt", "words.txt", "val/val_annotations.txt", "train/n01/images/n01_0.JPEG",
    "val/images/val_3.JPEG",
]  # fmt: skip


@pytest.mark.parametrize("announced", [None, 1000])
@pytest.mark.parametrize("name", SWELLING)
def test_members_that_unpack_to_too_much_are_refused(
    tmp_path: Path, name: str, announced: int | None
) -> None:
    folder, _, _ = layouts.tiny_imagenet(tmp_path)
    start = (folder / name).read_bytes()
    (folder / name).unlink()
    path = layouts.zipped(folder)
    layouts.append_swelling(path, f"{folder.name}/{name}", start, 300 * layouts.MIB, announced)
    what = "a text file" if name.endswith(".txt") else "an encoded image"
    reason = rf"refused: .*{name}: it takes more than \d+ MiB, the limit for {what}\. \w+"
    with (
        layouts.little_memory(),
        pytest.raises(DataError, match=rf"{name}: Bad CRC-32" if announced else reason),
    ):
        layouts.whole(load_data(path))


@pytest.mark.parametrize("packed", [False, True])
def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path: Path, packed: bool) -> None:
    folder, _, _ = layouts.tiny_imagenet(tmp_path)
    bomb = folder / "train" / "n01" / "images" / "n01_0.JPEG"
    Image.new("L", (8200, 8200)).save(bomb, "PNG")
    message = r"n01_0.JPEG: it has 8200x8200 pixels, which is more than 67108864\. Make"
    with layouts.little_memory(), pytest.raises(DataError, match=message):
        load_data(layouts.zipped(folder) if packed else folder, resize=4)


def test_words_of_the_official_size_are_read(tmp_path: Path) -> None:
    folder, _, _ = layouts.tiny_imagenet(tmp_path)
    words = "".join(f"n{number:08d}\tsome word, another\n" for number in range(82_115))
    (folder / "words.txt").write_text(f"{words}n01\tfish\n")
    assert load_data(layouts.zipped(folder)).class_names == ("fish", "n02", "n03")
