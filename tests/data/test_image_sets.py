from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data import layouts
from nppr.data import from_arrays, load_data
from nppr.data.file_trees import TarFiles
from nppr.data.image_sets import FileImages, to_size
from nppr.errors import DataError, SpecError


def images(*contents: bytes, resize: int | None = None) -> FileImages:
    named = {f"{number}": content for number, content in enumerate(contents)}
    found = FileImages(TarFiles(Path("made.tar.gz"), tuple(named), contents=named), tuple(named))
    return replace(found, frame=found.first_frame(resize))


def test_nothing_decoded_is_kept() -> None:
    pixels = layouts.pixels(6, side=5)
    found = images(*(layouts.encode(image) for image in pixels))
    x = found.load(np.array([4, 1]))
    assert x.dtype == torch.float32
    assert np.array_equal(layouts.eight_bit(x), pixels[[4, 1]])
    assert found.load(np.arange(0)).shape == (0, 3, 5, 5)
    smaller = images(layouts.encode(pixels[0]), resize=2)
    assert smaller.load(np.arange(0)).shape == (0, 3, 2, 2)


def test_digests_are_of_the_content() -> None:
    first, second = (layouts.encode(image) for image in layouts.pixels(2, side=5))
    found = images(first, second, first)
    assert found.digest(0) == found.digest(2) != found.digest(1)


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_formats_and_their_ends(kind: str) -> None:
    content = layouts.encode(layouts.pixels(1, side=6)[0], kind)
    assert images(content).load(np.arange(1)).shape == (1, 3, 6, 6)
    with pytest.raises(DataError, match=r"made.tar.gz: member 0: "):
        images(content[:-9]).load(np.arange(1))


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_bytes_after_the_end_are_no_damage(kind: str) -> None:
    content = layouts.encode(layouts.pixels(1, side=6)[0], kind)
    assert torch.equal(
        images(content + b"\xff\xdamore").load(np.arange(1)), images(content).load(np.arange(1))
    )


def test_programs_are_not_started_for_postscript() -> None:
    with pytest.raises(DataError, match="cannot identify"):
        images(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    content = bytearray(layouts.encode(layouts.pixels(1, side=6)[0], "BMP"))
    content[18:26] = (60_000).to_bytes(4, "little") * 2
    with pytest.raises(DataError, match="bomb"):
        images(bytes(content))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("side", [8_193, 12_000, 60_000])
def test_pixels_beyond_the_limit_are_refused(side: int) -> None:
    content = bytearray(layouts.encode(layouts.pixels(1, side=6)[0], "BMP"))
    content[18:26] = side.to_bytes(4, "little") * 2
    with pytest.raises(
        DataError, match=r"refused: made.tar.gz: member 0: .* Make the image smaller"
    ):
        images(bytes(content))


def test_large_images_are_resized_one_at_a_time() -> None:
    content = layouts.encode(layouts.pixels(1, side=1000)[0], "BMP")
    found = images(*[content] * 8, resize=4)
    with layouts.little_memory(12 * layouts.MIB):  # of 3 MB each
        assert found.load(np.arange(8)).shape == (8, 3, 4, 4)


@pytest.mark.parametrize(("side", "size"), [(32, 8), (8, 32), (17, 5)])
def test_resizing_agrees_with_pillow(side: int, size: int) -> None:
    image = layouts.pixels(1, 3, side)[0]
    plain = Image.fromarray(np.moveaxis(image, 0, -1))
    expected = np.asarray(plain.resize((size, size), Image.Resampling.BILINEAR)) / 255.0
    found = to_size(torch.from_numpy(image)[None].float() / 255, size)[0].permute(1, 2, 0)
    assert np.abs(found.numpy() - expected).max() < 1.6 / 255


def test_all_kinds_of_images_are_resized_alike(tmp_path: Path) -> None:
    pixels = layouts.pixels(20, side=9)
    known = layouts.labels(20, 2)
    np.savez(tmp_path / "a.npz", x=pixels, y=known)
    folder = tmp_path / "images"
    for number, image in enumerate(pixels):
        layouts.write(folder / "ab"[number // 10] / f"{number:02d}.png", layouts.encode(image))
    stored = load_data(tmp_path / "a.npz", resize=4).evaluate
    arrays = load_data((torch.from_numpy(pixels).float() / 255, known), resize=4).evaluate
    encoded = load_data(folder, resize=4).evaluate
    whole = to_size(torch.from_numpy(pixels).float() / 255, 4)
    for split in (stored, arrays, encoded):
        x, _ = split.batch(np.arange(len(split)))
        assert torch.allclose(x, whole[split.indices], atol=1e-6)


def test_the_same_size_changes_nothing() -> None:
    x = torch.rand(4, 1, 5, 5)
    assert to_size(x, 5) is x


def test_no_images_keep_their_shape() -> None:
    data = from_arrays(torch.rand(4, 1, 5, 5), [0, 1, 0, 1], shares=(0, 0))
    assert load_data(data, resize=3).fit.batch(np.arange(0))[0].shape == (0, 1, 3, 3)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "32"])
def test_bad_sizes_are_named(size: int) -> None:
    with pytest.raises(SpecError, match="`resize` must be a whole number of pixels >= 1"):
        load_data("digits", resize=size)
