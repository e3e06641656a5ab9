"""Data: load a name, a path, arrays or a Dataset, and divide it into three disjoint splits."""

from nppr.data.array_data import from_arrays
from nppr.data.class_order import ClassOrder, fit_classes, with_class_order
from nppr.data.data_formats import DataFormat
from nppr.data.data_loading import DataSpec, load_data
from nppr.data.data_set import (
    PROBE_INPUTS,
    RANGE_TOLERANCE,
    Data,
    Images,
    Split,
    content_hash,
    overlaps,
    short_digests,
    stratified_order,
)
from nppr.data.file_trees import import_extra, reading
from nppr.data.image_sets import StoredImages
from nppr.data.layout import RangeSpec
from nppr.data.slices import CLASS, Slice, slices_of, with_slices
from nppr.data.splits import Labelled, all_evaluated

__all__ = [
    "CLASS",
    "PROBE_INPUTS",
    "RANGE_TOLERANCE",
    "ClassOrder",
    "Data",
    "DataFormat",
    "DataSpec",
    "Images",
    "Labelled",
    "RangeSpec",
    "Slice",
    "Split",
    "StoredImages",
    "all_evaluated",
    "content_hash",
    "fit_classes",
    "from_arrays",
    "import_extra",
    "load_data",
    "overlaps",
    "reading",
    "short_digests",
    "slices_of",
    "stratified_order",
    "with_class_order",
    "with_slices",
]
