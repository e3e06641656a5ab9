"""Data in memory: tensors or arrays of the caller, and the handwritten digits of scikit-learn."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from nppr.data.data_set import Data, check_range, numbered_classes
from nppr.data.file_trees import reading
from nppr.data.image_sets import TensorImages
from nppr.data.splits import THREE_WAY, divide
from nppr.errors import DataError


def from_arrays(
    images: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    *,
    name: str = "arrays",
    classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
    shares: tuple[float, float] = THREE_WAY,
) -> Data:
    """Images `(N, C, H, W)` in [0, 1] and labels `(N,)`, divided three ways by class.

    `classes` or `class_names` give the number of classes where the labels do not show them all.
    `shares` are the shares of the fit and the select split; `shares=(0, 0)` evaluates everything, for
    sources that need no fit. The division is fixed: it does not depend on the seed of an assessment.
    """
    x = torch.as_tensor(images).detach()
    y = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if not x.is_floating_point():
        raise DataError(f"`images` must be floats in [0, 1], got {x.dtype}. Divide by 255.")
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"`labels` must be whole numbers (N,), got {y.dtype} {y.shape}.")
    if len(x) != len(y):
        raise DataError(
            f"`images` and `labels` must have the same length, got {len(x)} and {len(y)}."
        )
    if not len(y):
        raise DataError("`data` must hold at least one input, got none.")
    check_range(x, "whole")
    y = y.astype(np.int64)
    number = max(2, int(y.max()) + 1) if classes is None else classes
    names = class_names or numbered_classes(number)
    return divide(name, names, (TensorImages(x.float()), y), shares=shares)


@functools.cache
def load_digits() -> Data:
    """The 1,797 digits of scikit-learn `(1, 8, 8)`: 900 fit, 300 select and 597 evaluate inputs.

    Reference: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
    """
    found = importlib.util.find_spec("sklearn")  # to import it would take as long as PyTorch
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
