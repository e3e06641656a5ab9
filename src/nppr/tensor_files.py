"""The name under which `write_tensors` was found before `nppr.records`."""

from nppr.records import write_tensors

__all__ = ["write_tensors"]
