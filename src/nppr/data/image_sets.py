"""Image sets behind a split: arrays in memory and encoded files, resized when they are loaded.

All images of a data set have one frame (channels, height, width), which its first image determines.
"""

from __future__ import annotations

import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nppr.core.tally import IntArray
from nppr.data.data_set import Data, Images, content_hash
from nppr.data.file_trees import Files, reading
from nppr.data.layout import Layout, RangeSpec, parse_range
from nppr.errors import DataError
from nppr.system.bounded import ENCODED_IMAGE_LIMIT, OversizeError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that pillow decodes by itself; it runs programs for others, or they hold no photographs."""

MOST_PIXELS = 1 << 26
"""8192 x 8192. A few kilobytes can announce any number, and decoding takes 20 bytes per pixel."""

_TOO_LONG = " Convert them: x.astype(numpy.float32)."

GREY = ("1", "L")
WIDE = ("F", "I")
"""First letters of pillow's modes with more than 8 bits per channel, which it would truncate."""


@dataclass(frozen=True, eq=False)
class StoredImages:
    """Stored images in memory `(N, C, H, W)`, or with a `layout` inputs `(N, *shape)` of any range."""

    array: NDArray[Any]
    layout: Layout | None = None

    def __len__(self) -> int:
        return len(self.array)

    def load(self, positions: IntArray) -> Tensor:
        x = torch.from_numpy(np.ascontiguousarray(self.array[positions]))
        return _to_unit(x) if self.layout is None else self.layout.to_unit(x)

    def digest(self, position: int) -> bytes:
        return content_hash(np.ascontiguousarray(self.array[position]).tobytes())


@dataclass(frozen=True, eq=False)
class ResizedImages:
    """Images of another image set, resized when they are loaded."""

    images: Images
    size: int

    def __len__(self) -> int:
        return len(self.images)

    def load(self, positions: IntArray) -> Tensor:
        return to_size(self.images.load(positions).float(), self.size)

    def digest(self, position: int) -> bytes:
        return self.images.digest(position)


@dataclass(frozen=True)
class Frame:
    """The shape of all images of a data set; with `resize`, any height and width are accepted."""

    channels: int
    height: int
    width: int
    resize: int | None = None

    def check_size(self, height: int, width: int, where: str) -> None:
        """Raise `DataError` for an image of another size, unless images are resized."""
        if self.resize is None and (height, width) != (self.height, self.width):
            raise DataError(
                f"`data` must hold images of one size, got {height}x{width} in {where} where the first"
                f" is {self.height}x{self.width}. Give a size for all: --resize {self.height}."
            )

    def stack(self, images: Iterable[Tensor]) -> Tensor:
        """Stack images `(C, H, W)`, 8-bit or floats, to floats `(B, C, H, W)` in [0, 1]."""
        size = self.resize
        if size is not None:  # only one image at a time is in memory at its stored size
            images = (to_size(_to_unit(image)[None], size)[0] for image in images)
        stacked = list(images)
        if not stacked:
            return torch.zeros(0, self.channels, size or self.height, size or self.width)
        return _to_unit(torch.stack(stacked))


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedImages(ABC):
    """Encoded images (JPEG, PNG, ...), decoded when they are loaded; nothing decoded is kept."""

    frame: Frame | None = None
    """The frame of all images; None uses the frame of the first image."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, position: int) -> bytes:
        """Return the bytes of one encoded image."""

    @abstractmethod
    def where(self, position: int) -> str:
        """Return the name of the image for messages."""

    def first_frame(self, resize: int | None = None) -> Frame:
        """Return the frame that the first image determines."""
        with reading(self.where(0)):
            image = _open_image(self.read(0))
            return Frame(1 if image.mode in GREY else 3, image.height, image.width, resize)

    def load(self, positions: IntArray) -> Tensor:
        frame = self.frame or self.first_frame()
        return frame.stack(self._decode(position, frame) for position in positions.tolist())

    def digest(self, position: int) -> bytes:
        return content_hash(self.read(position))

    def _decode(self, position: int, frame: Frame) -> Tensor:
        content, where = self.read(position), self.where(position)
        with reading(where):
            image = _open_image(content)
            frame.check_size(image.height, image.width, where)
            return decode(image, frame.channels)


@dataclass(frozen=True, eq=False)
class FileImages(EncodedImages):
    """Encoded images stored as files of a tree."""

    files: Files
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def read(self, position: int) -> bytes:
        return self.files.read(self.names[position], ENCODED_IMAGE_LIMIT)

    def where(self, position: int) -> str:
        return self.files.where(self.names[position])


def in_one_frame(stored: Sequence[Images], resize: int | None) -> list[Images]:
    """Return the image sets of a data set, resized; encoded images use the frame of the first one."""
    if isinstance(stored[0], EncodedImages):
        frame = stored[0].first_frame(resize)
        return [replace(each, frame=frame) for each in stored if isinstance(each, EncodedImages)]
    return list(stored) if resize is None else [ResizedImages(each, resize) for each in stored]


def resize_data(data: Data, size: int | None) -> Data:
    """Resize all images to `size` by `size` pixels; None leaves them unchanged."""
    if size is None:
        return data
    return data.with_splits(lambda each: replace(each, images=ResizedImages(each.images, size)))


def to_size(x: Tensor, size: int) -> Tensor:
    """Resize floats `(B, C, H, W)` to `(B, C, size, size)`: bilinear, antialiased if made smaller."""
    if not len(x):
        return x.new_zeros(0, x.shape[1], size, size)
    if x.shape[-2:] == (size, size):
        return x
    smooth = F.interpolate(x, (size, size), mode="bilinear", antialias=True, align_corners=False)
    return smooth.clamp(float(x.min()), float(x.max()))


def channels_first(pixels: NDArray[Any], where: str) -> NDArray[Any]:
    """View `(N, C, H, W)`, `(N, H, W, C)` or `(N, H, W)` as `(N, C, H, W)`.

    Channels are fewer than rows and columns: the smaller of the second and the last axis.
    """
    if pixels.dtype != np.uint8 and (pixels.dtype.kind != "f" or _is_long(pixels)):
        raise DataError(
            f"`images` must be 8-bit (uint8) or floats in [0, 1], got {pixels.dtype} in {where}."
            f"{_TOO_LONG * _is_long(pixels)}"
        )
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    if pixels.ndim != 4 or 0 in pixels.shape[1:]:
        raise DataError(
            "`images` must have shape (N, C, H, W), (N, H, W, C) or (N, H, W),"
            f" got {pixels.shape} in {where}. For other inputs state their range: --range -1,1."
        )
    return np.moveaxis(pixels, -1, 1) if pixels.shape[3] < pixels.shape[1] else pixels


def _is_long(array: NDArray[Any]) -> bool:
    """Whether the numbers have more than 64 bits, which PyTorch does not support."""
    return array.dtype.itemsize > np.dtype(np.float64).itemsize


def _to_unit(x: Tensor) -> Tensor:
    """Divide 8-bit images by 255; leave floats as they are."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x.float()


def is_image(name: str) -> bool:
    """Whether a file is an image, judged by its suffix."""
    return name.lower().endswith(SUFFIXES)


def decode(image: Image, channels: int) -> Tensor:
    """Return 8-bit pixels `(C, H, W)`, converted to grey for one channel and to RGB for three."""
    if image.mode.startswith(WIDE):
        raise DataError(f"`images` must have 8 bits per channel, got pillow's mode {image.mode!r}.")
    mode = "L" if channels == 1 else "RGB"
    plain = image if image.mode == mode else image.convert(mode)
    pixels = np.array(plain).reshape(plain.height, plain.width, channels)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _open_image(content: bytes) -> Image:
    """Open an image and check its size and its end, without decoding its pixels."""
    import PIL.Image  # slow to import

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
            image = PIL.Image.open(io.BytesIO(content), formats=FORMATS)
    except PIL.Image.DecompressionBombError as error:  # pillow's own limit is higher than ours
        raise OversizeError(f"{error} Make the image smaller, or remove it.") from error
    if image.width * image.height > MOST_PIXELS:
        raise OversizeError(
            f"it has {image.width}x{image.height} pixels, which is more than {MOST_PIXELS}."
            " Make the image smaller, or remove it."
        )
    if not _ENDS.get(image.format or "", bool)(content):
        raise EOFError(f"the end of the {image.format} is missing")
    if image.format == "PNG":
        PIL.Image.open(io.BytesIO(content), formats=FORMATS).verify()  # its checksums
    return image


def _has_jpeg_end(content: bytes) -> bool:
    """Whether an end marker follows the start of the scan; a thumbnail before it has its own marker."""
    at = 2
    while at + 4 <= len(content) and content[at] == 0xFF and content[at + 1] != 0xDA:
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return b"\xff\xd9" in content[at:]


_ENDS: dict[str, Callable[[bytes], bool]] = {
    "BMP": lambda content: int.from_bytes(content[2:6], "little") <= len(content),
    "GIF": lambda content: content.rstrip(b"\0").endswith(b";"),
    "JPEG": _has_jpeg_end,
    "MPO": _has_jpeg_end,
    "PNG": lambda content: b"\0\0\0\0IEND\xaeB`\x82" in content,
    "WEBP": lambda content: int.from_bytes(content[4:8], "little") + 8 <= len(content),
}
"""Checks that an encoded image is complete, for formats that mark their end; pillow silently fills in
missing content. Cameras and editors store data after the end, so bytes there are not damage."""


def laid_out(array: NDArray[Any], given: RangeSpec, where: str) -> tuple[StoredImages, Layout]:
    """Return inputs `(N, *shape)` with a stated range, checked, and their layout."""
    if array.dtype.kind not in "fiub" or _is_long(array) or array.ndim < 2 or 0 in array.shape[1:]:
        raise DataError(
            "`data` must be numbers of shape (N, F), (N, C, L) or (N, C, H, W),"
            f" got {array.dtype} {array.shape} in {where}.{_TOO_LONG * _is_long(array)}"
        )
    layout = Layout(tuple(array.shape[1:]), *parse_range(given))
    layout.check(array, where)
    return StoredImages(array, layout), layout
