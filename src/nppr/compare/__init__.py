"""Several runs side by side: values, paired differences with intervals, ranks."""

from nppr.compare.make import compare
from nppr.compare.schema import Comparison, read_comparison

__all__ = ["Comparison", "compare", "read_comparison"]
