"""Several runs side by side: values, paired differences with intervals, ranks."""

from nppr.compare.compare_runs import compare
from nppr.compare.compare_views import FORMATS, console_tables, summary, write_comparison
from nppr.compare.comparison import Comparison, read_comparison

__all__ = [
    "FORMATS",
    "Comparison",
    "compare",
    "console_tables",
    "read_comparison",
    "summary",
    "write_comparison",
]
