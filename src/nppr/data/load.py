"""From what the caller gives to a `Data` object."""

from __future__ import annotations

from numpy.typing import ArrayLike
from torch import Tensor

from nppr.data.base import Data
from nppr.data.memory import from_arrays
from nppr.errors import DataError, unknown

__all__ = ["DATA", "DataSpec", "load_data"]

DataSpec = str | Data | tuple[Tensor | ArrayLike, Tensor | ArrayLike]

DATA = ("digits",)
"""Names of the data sets that need no download."""


def load_data(spec: DataSpec) -> Data:
    """A name, an `(images, labels)` pair or a `Data` object.

    >>> load_data("digits").classes
    10
    """
    match spec:
        case Data():
            return spec
        case "digits":
            from nppr.data.digits import digits  # scikit-learn is slow to import

            return digits()
        case str():
            raise unknown("data", spec, DATA)
        case (images, labels):
            return from_arrays(images, labels)
        case _:
            raise DataError(
                "`data` must be a name, a pair (images, labels) or a Data object,"
                f" got {type(spec).__name__}."
            )
