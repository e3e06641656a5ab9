"""scikit-learn's handwritten digits: 1,797 real 8x8 images that ship with the dependency.

Reference: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from sklearn.datasets import load_digits

from nppr.data.base import Data
from nppr.data.memory import from_arrays

__all__ = ["digits"]


@functools.cache
def digits() -> Data:
    """The digits as `(1, 8, 8)` images; 900 fit, 300 select and 597 evaluate inputs."""
    bunch = load_digits()
    images = torch.from_numpy(bunch.images / 16.0).float()[:, None]
    return from_arrays(
        images,
        bunch.target.astype(np.int64),
        name="digits",
        class_names=tuple(str(name) for name in bunch.target_names),
        shares=(900 / 1797, 300 / 1797),
    )
