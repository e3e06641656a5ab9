from pathlib import Path

import numpy as np
import pytest
import torch

from data import layouts
from nppr.data.encoded import EncodedImages, FileBlobs, first_frame
from nppr.data.files import MemoryFiles
from nppr.errors import DataError


def images(*contents: bytes, resize: int | None = None) -> EncodedImages:
    named = {f"{number}": content for number, content in enumerate(contents)}
    blobs = FileBlobs(MemoryFiles(Path("made.zip"), "", named), list(named))
    return EncodedImages(blobs, first_frame(blobs, resize))


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
    with pytest.raises(DataError, match=r"made.zip: member 0: "):
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
