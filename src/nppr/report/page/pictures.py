"""Images as data URIs: PNG files inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np
from markupsafe import Markup
from PIL import Image
from torch import Tensor

__all__ = ["LARGEST", "amplified", "png"]

LARGEST = 128
"""Pixels a side to which larger images are reduced."""


def png(image: Tensor) -> Markup:
    """A data URI of an image `(C, H, W)` of bytes; gray where it has one channel."""
    pixels = image.numpy()
    # More than three channels are no colours: their mean is shown.
    if pixels.shape[0] not in (1, 3):
        pixels = pixels.mean(axis=0, keepdims=True).round()
    pixels = pixels.astype(np.uint8)
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, -1))
    if max(picture.size) > LARGEST:
        picture.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    text = base64.b64encode(file.getvalue()).decode()
    return Markup("data:image/png;base64,{}").format(text)


def amplified(delta: Tensor, norm: str) -> tuple[Tensor, float]:
    """A perturbation `(C, H, W)`, in radii, as an image around middle gray, and what 1 radius became.

    linf: the radius is the full range. l2: the largest change is, since single pixels take little of
    the radius.
    """
    shares = delta.float()
    most = 1.0 if norm == "linf" else max(float(shares.abs().max()), 1e-12)
    image = ((shares / most).clamp(-1, 1) * 127.5 + 127.5).round()
    return image.byte(), 0.5 / most
