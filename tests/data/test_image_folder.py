"""Image folders and Tiny ImageNet are read back exactly, and what is missing or damaged is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data import layouts
from helpers import ends_within
from nppr.data import load_data
from nppr.errors import DataError


def test_one_split_is_split_three_ways(tmp_path: Path) -> None:
    images = layouts.pixels(40, side=6)
    data = load_data(layouts.image_folder(tmp_path, images, ["dog", "cat"]))
    assert data.class_names == ("cat", "dog")
    assert [len(data.fit), len(data.select), len(data.evaluate)] == [20, 8, 12]
    stored = np.concatenate([images[1::2], images[0::2]])
    for split in data.splits:
        x, _ = split.batch(np.arange(len(split)))
        assert np.array_equal(layouts.eight_bit(x), stored[split.indices])
        assert split.labels.tolist() == (split.indices >= 20).astype(int).tolist()


@pytest.mark.parametrize(
    ("first", "second"), [("train", "test"), ("train", "valid"), ("training", "val")]
)
@pytest.mark.parametrize("packed", [False, True])
def test_own_splits(tmp_path: Path, first: str, second: str, packed: bool) -> None:
    root = tmp_path / "pets"
    train, test = layouts.pixels(10, 1, 6), layouts.pixels(4, 1, 6, seed=1)
    layouts.image_folder(root / first, train, ["cat", "dog"])
    layouts.image_folder(root / second, test, ["cat", "dog"])
    data = load_data(layouts.zipped(root) if packed else root)
    assert np.array_equal(layouts.learned(data)[0], np.concatenate([train[::2], train[1::2]]))
    found = layouts.eight_bit(layouts.whole(data)["evaluate"])
    assert np.array_equal(found, np.concatenate([test[::2], test[1::2]]))
    assert len(data.fit) == 8


def test_a_class_that_only_the_test_split_has_keeps_its_number(tmp_path: Path) -> None:
    layouts.image_folder(tmp_path / "train", layouts.pixels(10, side=4), ["b", "c"])
    layouts.image_folder(tmp_path / "test", layouts.pixels(3, side=4), ["a", "b", "c"])
    data = load_data(tmp_path)
    assert data.class_names == ("a", "b", "c")
    assert set(data.fit.labels) == {1, 2}


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    layouts.image_folder(tmp_path, layouts.pixels(10, side=4), ["a", "b"])
    for name in ("README.md", "a/notes.txt", "a/.hidden.png", ".git/x.png"):
        layouts.write(tmp_path / name, b"no image")
    assert len(layouts.whole(load_data(tmp_path))["evaluate"]) == 3


def test_links_within_the_folder_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    real = layouts.image_folder(tmp_path / "real", layouts.pixels(10, side=4), ["a", "b"])
    (real / "b").rename(real / ".b")
    (real / "b").symlink_to(real / ".b")
    (real / "a" / "same.png").symlink_to("000.png")
    (real / "a" / "loop").symlink_to(real)
    (tmp_path / "linked").symlink_to(real)
    data = load_data(tmp_path / "linked")
    assert data.class_names == ("a", "b")
    assert sum(len(split) for split in data.splits) == 11
    layouts.whole(data)


@pytest.mark.parametrize("link", ["a", "a/deeper", "a/1.png", "notes"])
def test_links_that_lead_out_of_the_folder_are_refused(tmp_path: Path, link: str) -> None:
    images = layouts.pixels(10, side=4)
    root = layouts.image_folder(tmp_path / "data", images, ["b", "c"])
    outside = layouts.image_folder(tmp_path / "outside", images, ["b", "c"])
    (root / link).parent.mkdir(exist_ok=True)
    is_file = link.endswith(".png")
    (root / link).symlink_to(outside / "b" / "000.png" if is_file else outside / "b")
    with pytest.raises(DataError, match=f"must stay in its folder .*/{link} leads to .*outside/b"):
        layouts.whole(load_data(root))


def test_hidden_links_are_left_alone(tmp_path: Path) -> None:
    root = layouts.image_folder(tmp_path / "data", layouts.pixels(10, side=4), ["a", "b"])
    (root / ".cache").symlink_to(tmp_path)
    assert len(layouts.whole(load_data(root))["evaluate"]) == 3


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no such folder here")
def test_a_walk_does_not_leave_the_folder() -> None:
    with ends_within(5), pytest.raises(DataError, match="must stay in its folder /proc/self"):
        load_data("/proc/self")


def test_grey_or_colour_is_as_the_first_image(tmp_path: Path) -> None:
    grey, colour = layouts.pixels(1, 1, 4)[0], layouts.pixels(1, 3, 4)[0]
    for first, second, channels in ((grey, colour, 1), (colour, grey, 3)):
        root = tmp_path / str(channels)
        for name in ("a/0.png", "b/0.png"):
            layouts.write(root / name, layouts.encode(first))
        for name in ("a/1.png", "b/1.png"):
            layouts.write(root / name, layouts.encode(second))
        images = layouts.whole(load_data(root))
        assert {x.shape[1:] for x in images.values()} == {(channels, 4, 4)}


def test_mixed_sizes_need_resize(tmp_path: Path) -> None:
    layouts.image_folder(tmp_path, layouts.pixels(10, side=8), ["a", "b"])
    layouts.write(tmp_path / "b" / "odd.png", layouts.encode(layouts.pixels(1, side=5)[0]))
    with pytest.raises(DataError, match=r"5x5 in .*odd.png where the first is 8x8.*--resize 8"):
        layouts.whole(load_data(tmp_path))
    images = layouts.whole(load_data(tmp_path, resize=6))
    assert {x.shape[1:] for x in images.values()} == {(3, 6, 6)}


@pytest.mark.parametrize(
    ("classes", "message"), [(["only"], "at least 2 classes, got only"), ([], "no files")]
)
def test_one_class_or_none(tmp_path: Path, classes: list[str], message: str) -> None:
    if classes:
        layouts.image_folder(tmp_path, layouts.pixels(3, side=4), classes)
    with pytest.raises(DataError, match=message):
        load_data(tmp_path)


def test_images_without_class_folders(tmp_path: Path) -> None:
    layouts.write(tmp_path / "a.png", layouts.encode(layouts.pixels(1, side=4)[0]))
    with pytest.raises(DataError, match="at least 2 classes, got none"):
        load_data(tmp_path)


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    layouts.image_folder(tmp_path, layouts.pixels(10, side=4), ["a", "b"])
    (tmp_path / "c").mkdir()
    with pytest.raises(DataError, match=r"every class folder, got none in .*c"):
        load_data(tmp_path)


def test_an_image_that_does_not_decode_is_named(tmp_path: Path) -> None:
    layouts.image_folder(tmp_path, layouts.pixels(10, side=4), ["a", "b"])
    (tmp_path / "b" / "005.png").write_bytes(b"no image at all")
    with pytest.raises(DataError, match=r"b/005.png: cannot identify"):
        layouts.whole(load_data(tmp_path))


def test_16_bit_images_are_refused(tmp_path: Path) -> None:
    layouts.image_folder(tmp_path, layouts.pixels(10, 1, 4), ["a", "b"])
    wide = np.full((4, 4), 40_000, dtype=np.uint16)
    Image.fromarray(wide).save(tmp_path / "a" / "000.png")
    with pytest.raises(DataError, match="8 bits per channel, got pillow's mode 'I"):
        layouts.whole(load_data(tmp_path))


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
