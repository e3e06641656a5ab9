"""Images that are stored encoded (JPEG, PNG, ...) and decoded with pillow as they are needed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nppr.data.base import content_hash
from nppr.data.files import Files
from nppr.data.frames import Frame
from nppr.data.guard import reading
from nppr.data.image_ends import has_end
from nppr.errors import DataError
from nppr.types import IntArray

__all__ = ["Blobs", "EncodedImages", "FileBlobs", "first_frame", "is_image", "pixels_of"]

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that pillow decodes by itself; others start programs or are no photographs."""

GREY = ("1", "L")
WIDE = ("F", "I")
"""First letters of pillow's modes with more than 8 bits a channel, which it would cut off."""


class Blobs(Protocol):
    """Encoded images by position."""

    def __len__(self) -> int: ...

    def read(self, position: int) -> bytes:
        """The bytes of one encoded image."""

    def where(self, position: int) -> str:
        """How a message names the image."""


@dataclass(frozen=True, eq=False)
class FileBlobs:
    """Encoded images that are files of a tree."""

    files: Files
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def read(self, position: int) -> bytes:
        return self.files.read(self.names[position])

    def where(self, position: int) -> str:
        return self.files.where(self.names[position])


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """Encoded images of one frame; nothing decoded is kept."""

    blobs: Blobs
    frame: Frame

    def __len__(self) -> int:
        return len(self.blobs)

    def load(self, positions: IntArray) -> Tensor:
        return self.frame.stack([self._decode(position) for position in positions.tolist()])

    def digest(self, position: int) -> bytes:
        return content_hash(self.blobs.read(position))

    def _decode(self, position: int) -> Tensor:
        content, where = self.blobs.read(position), self.blobs.where(position)
        with reading(where):
            image = _open(content)
            self.frame.admit(image.height, image.width, where)
            return pixels_of(image, self.frame.channels)


def first_frame(blobs: Blobs, resize: int | None) -> Frame:
    """The frame that the first image sets: grey or colour, and its size."""
    if not len(blobs):
        raise DataError("`data` must hold at least one image with a label, got none.")
    with reading(blobs.where(0)):
        image = _open(blobs.read(0))
        return Frame(1 if image.mode in GREY else 3, image.height, image.width, resize)


def pixels_of(image: Image.Image, channels: int) -> Tensor:
    """8-bit pixels `(C, H, W)`, converted to grey for one channel and to RGB for three."""
    if image.mode.startswith(WIDE):
        raise DataError(f"`images` must have 8 bits a channel, got pillow's mode {image.mode!r}.")
    mode = "L" if channels == 1 else "RGB"
    plain = image if image.mode == mode else image.convert(mode)
    pixels = np.array(plain).reshape(plain.height, plain.width, channels)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def is_image(name: str) -> bool:
    """Whether a file is an image, by the end of its name."""
    return name.lower().endswith(SUFFIXES)


def _open(content: bytes) -> Image.Image:
    """An image whose end is there, its pixels not decoded yet."""
    image = Image.open(io.BytesIO(content), formats=FORMATS)
    if not has_end(image.format, content):
        raise EOFError(f"the end of the {image.format} is missing")
    if image.format == "PNG":
        Image.open(io.BytesIO(content), formats=FORMATS).verify()  # its checksums
    return image
