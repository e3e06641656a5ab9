"""Are these images in [0, 1], as bright as images are, and of all classes alike?"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from nppr.data import RANGE_TOLERANCE, Data
from nppr.flags import CLASS_IMBALANCE, LOOK_SCALED, OUT_OF_RANGE, flag
from nppr.report.schema import Flag
from nppr.types import IntArray

__all__ = ["check_inputs", "probe_positions"]

PROBES = 32
"""Inputs that are looked at, at most."""


DARK = 0.02
"""Images whose largest pixel is below this are too dark: 1/255, divided by 255 twice, is."""

IMBALANCE = 3.0
"""The largest class over the mean of the others, from which on it dominates."""

LARGE_CLASS = 30
"""Inputs of a class that dominates, at least: a few more of one class are chance."""

INPUTS_A_CLASS = 10
"""Inputs a class on average from which on no class may be missing."""


def check_inputs(data: Data) -> tuple[Flag, ...]:
    """Flags of the evaluate part: the pixels of some of its images, and all its labels."""
    part = data.evaluate
    loaded = part.images.load(part.indices[probe_positions(data)]).float()
    return (*_check_pixels(loaded), *_check_balance(data))


def probe_positions(data: Data) -> IntArray:
    """At most 32 positions, spread over the evaluate part so that they are of many classes."""
    return np.unique(np.linspace(0, len(data.evaluate) - 1, PROBES).astype(np.int64))


def _check_pixels(x: Tensor) -> tuple[Flag, ...]:
    """Flags of images `(B, C, H, W)` as they were loaded."""
    low, high = (float(bound) for bound in torch.aminmax(x))  # NaN anywhere makes both NaN
    if not (low >= -RANGE_TOLERANCE and high <= 1 + RANGE_TOLERANCE):
        found = f"pixels from {low:.3g} to {high:.3g}"
        if _standardised(x):
            found += ", apparently normalised already"
        return (flag(OUT_OF_RANGE, found),)
    if high < DARK:
        return (flag(LOOK_SCALED, f"the largest pixel is {high:.2g}"),)
    return ()


def _check_balance(data: Data) -> tuple[Flag, ...]:
    """A class that dominates the evaluate part, or one that is missing there."""
    counts: IntArray = np.bincount(data.evaluate.labels, minlength=data.classes)
    largest = int(counts.argmax())
    most = int(counts[largest])
    others = (int(counts.sum()) - most) / (data.classes - 1)
    missing = int((counts == 0).sum())
    if most >= LARGE_CLASS and most > IMBALANCE * others:
        found = f"{most:,} inputs of class {data.class_names[largest]!r}, {others:.1f} of another"
    elif missing and counts.mean() >= INPUTS_A_CLASS:
        found = f"{missing:,} of {data.classes:,} classes have no input"
    else:
        return ()
    return (flag(CLASS_IMBALANCE, found),)


def _standardised(x: Tensor) -> bool:
    """Negative pixels, a mean near 0 and a standard deviation near 1."""
    mean, std = float(x.mean()), float(x.std())
    return math.isfinite(mean) and float(x.min()) < 0 and abs(mean) < 1 and 0.5 < std < 2
