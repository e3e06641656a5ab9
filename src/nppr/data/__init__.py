"""Data: from a spec, a pair of arrays or a `Data` object to three disjoint parts."""

from nppr.data.base import Data, Images, Part, TensorImages
from nppr.data.load import load_data
from nppr.data.memory import from_arrays

__all__ = ["Data", "Images", "Part", "TensorImages", "from_arrays", "load_data"]
