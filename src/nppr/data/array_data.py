"""Data in memory: tensors or arrays of the caller, and the handwritten digits of scikit-learn."""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from nppr.core.task import Task
from nppr.data.convert_arrays import convert_arrays, to_tensor
from nppr.data.data_set import Data, check_range, numbered_classes
from nppr.data.file_trees import reading
from nppr.data.image_sets import StoredImages, laid_out
from nppr.data.layout import RangeSpec
from nppr.data.splits import THREE_WAY, divide
from nppr.errors import DataError

EVERY_INPUT = "every input"
"""Name of the only class of inputs whose targets are not classes."""


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

    8-bit images, images `(N, H, W, C)` and labels that are words are converted if that is
    unambiguous (`nppr.data.convert_arrays`).

    With `input_range`, inputs have any shape `(N, ...)` and lie in that range: (low, high), each a
    number or one per feature. With a `task`, the labels are its targets `(N, ...)`.

    If the labels do not show all classes, `classes` or `class_names` state their number. `shares`
    are the shares of the fit and the select split; `shares=(0, 0)` evaluates everything, for
    sources that need no fit. The division is fixed: it does not depend on the seed of an
    assessment.
    """
    notes: tuple[str, ...] = ()
    if input_range is None and task is None:
        made = convert_arrays(images, labels)
        x, y, notes = made.images, made.labels, made.notes
        class_names = class_names or made.class_names
    else:
        x = to_tensor(images)
        y = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
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
    return replace(data, layout=layout, task=task, notes=notes)


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
