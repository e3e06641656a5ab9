from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data import layouts
from nppr.data import from_arrays, load_data
from nppr.data.frames import to_size
from nppr.errors import SpecError


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
    for part in (stored, arrays, encoded):
        x, _ = part.batch(np.arange(len(part)))
        assert torch.allclose(x, whole[part.indices], atol=1e-6)


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
