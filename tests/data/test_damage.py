"""Fifty cut and fifty bit-flipped files of every kind: never anything but one of our errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from data import layouts
from nppr.data import load_data
from nppr.errors import NpprError

FILES = 50


def cifar_archive(root: Path) -> tuple[Path, Path]:
    path = layouts.tar(layouts.cifar_10(root, batch=2)[0])
    return path, path


def cifar_batch(root: Path) -> tuple[Path, Path]:
    folder, _, _ = layouts.cifar_10(root, batch=2)
    return folder, folder / "data_batch_4"


def cifar_meta(root: Path) -> tuple[Path, Path]:
    folder, _, _ = layouts.cifar_100(root)
    return folder, folder / "meta"


def tiny_zip(root: Path) -> tuple[Path, Path]:
    path = layouts.zipped(layouts.tiny_imagenet(root, "JPEG")[0])
    return path, path


def tiny_image(root: Path) -> tuple[Path, Path]:
    folder, _, _ = layouts.tiny_imagenet(root, "JPEG")
    return folder, folder / "train" / "n02" / "images" / "n02_1.JPEG"


def png(root: Path) -> tuple[Path, Path]:
    layouts.image_folder(root, layouts.pixels(10, side=5), ["a", "b"])
    return root, root / "a" / "004.png"


def bmp(root: Path) -> tuple[Path, Path]:
    layouts.image_folder(root, layouts.pixels(10, side=5), ["a", "b"], "BMP")
    return root, root / "a" / "000.bmp"


def idx_images(root: Path) -> tuple[Path, Path]:
    layouts.mnist(root)
    return root, root / "train-images-idx3-ubyte"


def idx_packed(root: Path) -> tuple[Path, Path]:
    layouts.mnist(root, packed=True)
    return root, root / "t10k-labels-idx1-ubyte.gz"


def npz(root: Path) -> tuple[Path, Path]:
    path = root / "a.npz"
    np.savez_compressed(path, x=layouts.pixels(10, side=5), y=layouts.labels(10, 2))
    return path, path


def parquet(root: Path) -> tuple[Path, Path]:
    pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    contents = [layouts.encode(image) for image in layouts.pixels(10, side=5)]
    path = layouts.parquet(root / "a.parquet", contents, [0, 1] * 5)
    return path, path


KINDS = [
    cifar_archive, cifar_batch, cifar_meta, tiny_zip, tiny_image, png, bmp, idx_images, idx_packed,
    npz, parquet,
]  # fmt: skip
CHECKED = [cifar_archive, png, idx_packed]
"""Kinds whose checksums cover every bit of what is read."""

Maker = Callable[[Path], tuple[Path, Path]]


def fails(spec: Path) -> bool:
    """Whether reading everything is an error of ours, in one line; any other error is passed on."""
    message = ""
    try:
        layouts.whole(load_data(spec))
    except NpprError as error:
        message = str(error)
    assert "\n" not in message
    return bool(message)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_cut_file_is_always_an_error(tmp_path: Path, make: Maker) -> None:
    spec, file = make(tmp_path)
    content = file.read_bytes()
    assert not fails(spec)
    lengths = np.random.default_rng(0).integers(0, len(content), FILES)
    for length in [0, 1, len(content) - 2, len(content) - 1, *lengths.tolist()]:
        file.write_bytes(content[:length])
        assert fails(spec), f"{length} of {len(content)} bytes were accepted"


@pytest.mark.slow
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_flipped_bit_is_an_error_of_ours_or_data(tmp_path: Path, make: Maker) -> None:
    spec, file = make(tmp_path)
    content = file.read_bytes()
    bits = np.random.default_rng(0).integers(0, 8 * len(content), FILES)
    tolerated = 8 * (24 if make in CHECKED else len(content))
    # the first bytes say how the rest is read, so they are flipped more often than chance would
    for bit in [*range(0, 8 * min(len(content), 24), 4), *bits.tolist()]:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        assert fails(spec) or bit < tolerated, f"bit {bit} was accepted"
