"""Frames of a sensor, from every place they may come from, and what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from nppr.data import from_arrays, load_data
from nppr.data.noise_frames import read_noise_frames
from nppr.errors import DataError

RNG = np.random.default_rng(0)
GREY = RNG.integers(90, 110, size=(12, 8, 8)).astype(np.uint8)
COLOUR = RNG.integers(90, 110, size=(12, 6, 7, 3)).astype(np.uint8)
DIGITS = load_data("digits")
RGB = from_arrays(torch.rand(20, 3, 6, 7), np.arange(20) % 2)


def test_the_noise_is_the_frames_minus_their_mean() -> None:
    read = read_noise_frames(GREY, DIGITS)
    unit = GREY / 255.0
    expected = (unit - unit.mean(0)) * np.sqrt(12 / 11)
    assert read.noise[:, 0] == pytest.approx(expected, abs=1e-6)
    assert read.noise.var(0).mean() == pytest.approx(unit.var(0, ddof=1).mean(), rel=1e-3)
    assert read.mean[0] == pytest.approx(unit.mean(0), abs=1e-6)
    assert read.at_ends == 0


def test_every_layout_and_place_gives_the_same_noise(tmp_path: Path) -> None:
    (tmp_path / "frames").mkdir()
    for number, pixels in enumerate(COLOUR):
        Image.fromarray(pixels).save(tmp_path / "frames" / f"{number:02}.png")
    np.save(tmp_path / "x.npy", COLOUR)
    np.savez_compressed(tmp_path / "x.npz", frames=np.moveaxis(COLOUR, -1, 1))
    unit = (COLOUR / 255.0).astype(np.float32)
    given: list[Any] = [
        COLOUR, np.moveaxis(COLOUR, -1, 1), torch.from_numpy(unit), tmp_path / "frames",
        str(tmp_path / "x.npy"), tmp_path / "x.npz", np.asfortranarray(unit),
    ]  # fmt: skip
    first, *others = (read_noise_frames(each, RGB) for each in given)
    assert first.noise.shape == (12, 3, 6, 7)
    for other in others:
        assert np.allclose(other.noise, first.noise, atol=1e-6)


def test_a_range_scales_signals() -> None:
    rows = RNG.normal(size=(40, 2, 30)).clip(-3, 3)
    data = from_arrays(rows, np.arange(40) % 2, input_range=((-4, -8), (4, 8)))
    read = read_noise_frames(rows[:20], data)
    assert read.noise.shape == (20, 2, 1, 30)
    centred = (rows[:20] - rows[:20].mean(0)) * np.sqrt(20 / 19)
    assert read.noise[:, :, 0] == pytest.approx(centred / [[[8], [16]]], abs=1e-6)


def test_values_at_the_ends_are_counted() -> None:
    frames = GREY.copy()
    frames[:, 0] = 255
    frames[:, 1] = 0
    assert read_noise_frames(frames, DIGITS).at_ends == 0.25


NAN = (GREY / 255.0).copy()
NAN[3, 2, 1] = np.nan
REFUSED: dict[str, tuple[Any, str]] = {
    "few": (GREY[:9], "at least 10 frames of the same scene, got 9"),
    "nan": (NAN, "must be finite"),
    "channels": (COLOUR, "channels of the data, 1, got frames of 6 x 7 x 3"),
    "equal": (GREY[:1].repeat(12, axis=0), "must differ from each other"),
    "whole": (GREY.astype(np.int32), "must be 8-bit or floats in the range of the data"),
    "large": (GREY.astype(float), "in the range of the data, got values up to 1"),
    "words": (["a", "b"], "one array of numbers, got list"),
    "objects": (np.array([{}] * 12), "one array of numbers"),
    "flat": (np.zeros((12, 8)), "must have shape"),
    "empty": (np.zeros((12, 0, 8)), "must have shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsuitable_arrays_are_refused_in_one_line(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(DataError) as raised:
        read_noise_frames(given, DIGITS)
    assert message in str(raised.value)
    assert str(raised.value).startswith("`noise-samples` ")
    assert "\n" not in str(raised.value)


class Harmful:
    """An object whose reading would show."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm"),)


def test_unsuitable_files_are_refused_and_nothing_is_unpickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("objects.npy", np.array([Harmful()] * 12), allow_pickle=True)
    Path("pickled.npy").write_bytes(pickle.dumps(Harmful()))
    np.save("whole.npy", GREY)
    Path("short.npy").write_bytes(Path("whole.npy").read_bytes()[:-1])
    np.savez("two.npz", a=GREY, b=GREY)
    Path("few").mkdir()
    Path("mixed").mkdir()
    for number, pixels in enumerate(GREY):
        Image.fromarray(pixels[: 8 - number % 2]).save(f"mixed/{number:02}.png")
    np.lib.format.write_array_header_1_0(
        (huge := open("huge.npy", "wb")),  # noqa: SIM115
        {"descr": "|u1", "fortran_order": False, "shape": (10, 1 << 40)},
    )
    huge.close()
    for name, message in {
        "objects.npy": "pickled objects",
        "pickled.npy": "cannot be read: pickled.npy",
        "short.npy": "announced",
        "huge.npy": "is refused: huge.npy",
        "two.npz": "must hold one array, got a, b",
        "few": "must hold images, got none in 'few'",
        "mixed": "images of one size",
        "absent": "must be a folder of images, a .npy or a .npz, got 'absent'",
        "absent.npy": "absent.npy is missing",
    }.items():
        with pytest.raises(DataError, match=r"^`noise-samples` ") as raised:
            read_noise_frames(name, DIGITS)
        assert message in str(raised.value), name
    assert not Path("harm").exists()
