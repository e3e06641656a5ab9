"""Frames of one constant scene, or dark frames, whose noise is measured."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nppr.data.array_files import read_only_array
from nppr.data.data_set import Data
from nppr.data.file_trees import FolderFiles
from nppr.data.image_sets import FileImages, is_image
from nppr.errors import DataError

FEWEST_FRAMES = 10
MOST_NUMBERS = 1 << 26
"""Numbers in all frames; working on more takes gigabytes."""


@dataclass(frozen=True, eq=False)
class NoiseFrames:
    """The noise in N frames, in the range of the data: frames minus their mean over the frames.

    `noise` `(N, C, H, W)` is multiplied by sqrt(N / (N - 1)), so that its variance is unbiased.
    """

    noise: NDArray[np.float32]
    mean: NDArray[np.float32]
    at_ends: float
    """Fraction of the values of the frames at an end of the range."""
    sha256: str


def read_noise_frames(given: Any, data: Data) -> NoiseFrames:
    """Read frames from a folder of images, a `.npy`, a `.npz` or an array.

    Frames are `(N, H, W)`, `(N, H, W, C)` or `(N, C, H, W)`, for signals `(N, C, L)`; 8-bit ones are
    divided by 255, and with a range of the data by its width.
    """
    try:
        path = Path(given) if isinstance(given, str | Path) else None
        stored = _read_path(path, data) if path else np.asarray(torch.as_tensor(given).cpu())
        return _remove_mean(stored, data)
    except DataError as error:
        words = str(error).replace("`data`", "`noise-samples`")
        raise DataError(words.replace("`images`", "`noise-samples`")) from error
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(
            f"`noise-samples` must be one array of numbers, got {type(given).__name__}: {reason}."
        ) from error


def _read_path(path: Path, data: Data) -> NDArray[Any]:
    if not path.is_dir():
        if not path.name.lower().endswith((".npy", ".npz")):
            raise DataError(
                "`noise-samples` must be a folder of images, a .npy or a .npz, got"
                f" {str(path)!r}. Example: --noise-samples frames/"
            )
        return read_only_array(path)
    files = FolderFiles.of(path)
    names = [name for name in files.names if is_image(name)]
    if not names:
        raise DataError(f"`noise-samples` must hold images, got none in {str(path)!r}.")
    images = FileImages(files, names)
    frame = images.first_frame()
    _require_shape((len(names), frame.channels, frame.height, frame.width), data)
    return images.load(np.arange(len(names))).numpy()


def _remove_mean(stored: NDArray[Any], data: Data) -> NoiseFrames:
    """Return the noise of frames as they are stored."""
    if stored.dtype != np.uint8 and stored.dtype.kind != "f" and data.layout is None:
        raise DataError(
            f"`noise-samples` must be 8-bit or floats in the range of the data, got {stored.dtype}."
            " Divide raw values by their full scale: x / 4095."
        )
    if stored.dtype.kind not in "fiu":
        raise DataError(f"`noise-samples` must be numbers, got {stored.dtype}.")
    frames = _as_images(stored, data)
    most = 255.0 if frames.dtype == np.uint8 else 1.0
    ends = (data.layout.low, data.layout.high) if data.layout else ((0.0,), (most,))
    start, end = (np.array(each, np.float32).reshape(-1, 1, 1) for each in ends)
    unit = (frames.astype(np.float32) - start) / (end - start)
    if not np.isfinite(unit).all():
        raise DataError("`noise-samples` must be finite, got NaN or infinite numbers.")
    if np.abs(unit).max() > 1 + 1e-6:
        raise DataError(
            f"`noise-samples` must be in the range of the data, got values up to {frames.max():g}."
            " Divide them by their full scale."
        )
    mean = unit.mean(0, dtype=np.float64).astype(np.float32)
    noise = (unit - mean) * np.float32(math.sqrt(len(unit) / (len(unit) - 1)))
    if not np.abs(noise).max() > 1e-9:
        raise DataError("`noise-samples` must differ from each other, got equal frames.")
    at_ends = float(((unit <= 0) | (unit >= 1)).mean())
    return NoiseFrames(noise, mean, at_ends, hashlib.sha256(unit.tobytes()).hexdigest())


def _as_images(stored: NDArray[Any], data: Data) -> NDArray[Any]:
    """View frames as `(N, C, H, W)`; the data say which axis has the channels."""
    channels = data.shape[0]
    signal = data.layout is not None and data.layout.kind == "signal"
    if stored.ndim == 3:
        stored = stored[:, :, None] if signal else stored[:, None]
    if stored.ndim != 4 or 0 in stored.shape:
        raise DataError(
            "`noise-samples` must have shape (N, H, W), (N, H, W, C) or (N, C, H, W), got"
            f" {stored.shape}."
        )
    if stored.shape[1] != channels and stored.shape[3] == channels:
        stored = np.moveaxis(stored, -1, 1)
    _require_shape(stored.shape, data)
    return stored


def _require_shape(shape: tuple[int, ...], data: Data) -> None:
    """Raise `DataError` for too few or too many frames `(N, C, H, W)`, or other channels."""
    found = " x ".join(map(str, shape[1:]))
    if shape[0] < FEWEST_FRAMES:
        raise DataError(
            f"`noise-samples` must hold at least {FEWEST_FRAMES} frames of the same scene, got"
            f" {shape[0]}."
        )
    if shape[1] != data.shape[0]:
        raise DataError(
            f"`noise-samples` must have the channels of the data, {data.shape[0]}, got frames of"
            f" {found}. Take frames as the inputs were taken."
        )
    if math.prod(shape) > MOST_NUMBERS:
        raise DataError(
            f"`noise-samples` must hold at most {MOST_NUMBERS:,} numbers, got {shape[0]} x {found}."
            " Crop the frames, or give fewer."
        )
