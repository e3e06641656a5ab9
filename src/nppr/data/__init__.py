"""Data: from a spec, a path, arrays or a Dataset to three disjoint parts."""

from nppr.data.base import Data, Images, Part, TensorImages
from nppr.data.load import load_data
from nppr.data.memory import from_arrays
from nppr.data.overlap import overlaps

__all__ = ["Data", "Images", "Part", "TensorImages", "from_arrays", "load_data", "overlaps"]
