"""Data from tensors or arrays that are in memory."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from nppr.data.base import Data, Part, TensorImages, check_range
from nppr.data.subset import SPLIT_SEED, THREE_WAY, three_way
from nppr.errors import DataError
from nppr.types import Evaluate, Fit, Select

__all__ = ["from_arrays"]


def from_arrays(
    images: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    *,
    name: str = "arrays",
    classes: int | None = None,
    class_names: tuple[str, ...] | None = None,
    shares: tuple[float, float] = THREE_WAY,
) -> Data:
    """Images `(N, C, H, W)` in [0, 1] and labels `(N,)`, split three ways by class.

    `classes` or `class_names` say how many classes there are, where the labels do not show them all.
    `shares` are the shares of the fit and the select part; `shares=(0, 0)` evaluates everything, for
    sources that need no fit. The split is fixed: it does not depend on the seed of an assessment.
    """
    x = torch.as_tensor(images).detach()
    y = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if not (x.is_floating_point()):
        raise DataError(f"`images` must be floats in [0, 1], got {x.dtype}. Divide by 255.")
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise DataError(f"`labels` must be whole numbers (N,), got {y.dtype} {y.shape}.")
    if len(x) != len(y):
        raise DataError(f"`images` and `labels` must be as many, got {len(x)} and {len(y)}.")
    if not len(y):
        raise DataError("`data` must hold at least one input, got none.")
    check_range(x, "whole")
    y = y.astype(np.int64)
    number = max(2, int(y.max()) + 1) if classes is None else classes
    names = class_names or tuple(str(label) for label in range(number))
    parts = three_way(y, shares, SPLIT_SEED)
    source = TensorImages(x.float())
    fit, select, evaluate = parts
    return Data(
        name=name,
        class_names=names,
        fit=Part(Fit, source, fit, y[fit]),
        select=Part(Select, source, select, y[select]),
        evaluate=Part(Evaluate, source, evaluate, y[evaluate]),
    )
