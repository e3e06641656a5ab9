"""Data in memory: tensors or arrays of the caller, and the handwritten digits of scikit-learn.

Common forms are converted if that is unambiguous; otherwise an error explains the fix. Every
conversion is noted (`Data.notes`), on the console and in the report.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nppr.core.task import Task
from nppr.data.class_order import sorted_note
from nppr.data.data_set import Data, check_range, numbered_classes
from nppr.data.file_trees import reading
from nppr.data.image_sets import StoredImages, laid_out
from nppr.data.layout import RangeSpec
from nppr.data.splits import THREE_WAY, divide
from nppr.errors import DataError

EVERY_INPUT = "every input"
"""Name of the only class of inputs whose targets are not classes."""

COLOURS = (1, 3)
"""Numbers of channels that the last axis of an image may have; an axis of 2 or 4 is ambiguous."""


def from_arrays(
    images: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    *,
    name: str = "arrays",
    classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
    shares: tuple[float, float] = THREE_WAY,
    input_range: RangeSpec | None = None,
    task: Task | None = None,
) -> Data:
    """Make data from images `(N, C, H, W)` in [0, 1] and labels `(N,)`, divided three ways by class.

    8-bit images, images `(N, H, W, C)` and words as labels are converted if that is unambiguous.

    With `input_range`, inputs have any shape `(N, ...)` and lie in that range: (low, high), each a
    number or one per feature. With a `task`, the labels are its targets `(N, ...)`.

    If the labels do not show all classes, `classes` or `class_names` state their number. `shares`
    are those of the fit and the select split; `shares=(0, 0)` evaluates everything, for sources
    that need no fit. The division does not depend on the seed of an assessment.
    """
    notes: list[str] = []
    x = _to_tensor(images)
    y = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if input_range is None and task is None:
        x = _convert_images(x, notes)
        y, words = _convert_labels(y, notes)
        class_names = class_names or words
    if input_range is None and not x.is_floating_point():
        raise DataError(f"`images` must be floats in [0, 1], got {x.dtype}. Divide by 255.")
    classified = task is None or task.classes
    if classified and (y.ndim != 1 or y.dtype.kind not in "iu"):
        raise DataError(f"`labels` must be whole numbers (N,), got {y.dtype} {y.shape}.")
    if y.dtype.kind not in "iufb" or (y.dtype.kind == "f" and not np.isfinite(y).all()):
        raise DataError(
            "`targets` must be finite numbers in one array (N, ...), got"
            f" {'NaN or infinite ones' if y.dtype.kind == 'f' else y.dtype}."
        )
    if len(x) != len(y):
        both = "`images` and `labels`" if task is None else "inputs and targets"
        raise DataError(f"{both} must have the same length, got {len(x)} and {len(y)}.")
    if not len(y):
        raise DataError("`data` must hold at least one input, got none.")
    found, layout = StoredImages(x.float().cpu().numpy()), None
    if input_range is None:
        check_range(x, "whole")
    else:
        found, layout = laid_out(x.cpu().numpy(), input_range, "`data`")
    targets = None if classified else torch.from_numpy(np.ascontiguousarray(y))
    y = y.astype(np.int64) if classified else np.zeros(len(x), np.int64)
    number = max(2, int(y.max()) + 1) if classes is None else classes
    names = class_names or numbered_classes(number)
    names = names if classified else (EVERY_INPUT,)
    data = divide(name, names, (found, y), shares=shares, targets=targets)
    return replace(data, layout=layout, task=task, notes=tuple(notes))


@functools.cache
def load_digits() -> Data:
    """Return the 1,797 digits of scikit-learn `(1, 8, 8)`: 900 fit, 300 select, 597 evaluate inputs.

    Reference: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """
    found = importlib.util.find_spec("sklearn")  # importing it takes as long as PyTorch
    assert found is not None  # nppr depends on it
    assert found.submodule_search_locations is not None
    path = Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    with reading(str(path)):
        table = np.loadtxt(path, delimiter=",")
    return from_arrays(
        torch.from_numpy(table[:, :-1].reshape(-1, 1, 8, 8) / 16.0).float(),
        table[:, -1].astype(np.int64),
        name="digits",
        class_names=tuple(map(str, range(10))),
        shares=(900 / 1797, 300 / 1797),
    )


def _to_tensor(images: Tensor | ArrayLike) -> Tensor:
    try:
        return torch.as_tensor(images).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(
            f"`images` must be one tensor or array of numbers, got {type(images).__name__}: {reason}."
            " Example: torch.stack(images)"
        ) from error


def _convert_images(x: Tensor, notes: list[str]) -> Tensor:
    """Divide 8-bit images by 255; move channels to the front if the shape allows no other reading."""
    shape = tuple(x.shape)
    if x.dtype == torch.uint8:
        notes.append("images: 8-bit, divided by 255")
        if x.ndim == 3 and shape[1] == shape[2]:
            notes.append(f"images: {shape} taken as (N, H, W), one channel")
            x = x[:, None]
        x = x.float() / 255
    if len(shape) != 4 or shape[1] <= 4 or shape[3] > 4:
        return x
    _, first, second, last = shape
    if last == 3 or (last in COLOURS and first == second):
        notes.append(f"images: {shape} taken as (N, H, W, C), channels moved to the front")
        return x.permute(0, 3, 1, 2).contiguous()
    if first == second:
        raise DataError(
            f"`images` must have shape (N, C, H, W), got {shape}, which looks like (N, H, W, C)."
            " Use x.permute(0, 3, 1, 2), or np.moveaxis(x, -1, 1)."
        )
    return x


def _convert_labels(
    y: NDArray[Any], notes: list[str]
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Convert whole floats to numbers, and words to numbers in sorted order; return the words too."""
    if y.ndim != 1:
        return y, None
    if y.dtype.kind == "f" and np.array_equal(y, np.rint(y)):
        notes.append("labels: floats that are whole numbers, taken as classes")
        return y.astype(np.int64), None
    if y.dtype.kind == "O" and all(isinstance(word, str) for word in y):
        y = y.astype(str)
    if y.dtype.kind != "U":
        return y, None
    words, y = np.unique(y, return_inverse=True)
    names = tuple(words.tolist())
    notes.append(sorted_note(names))
    return y, names
