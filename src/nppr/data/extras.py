"""Packages that only some kinds of data need."""

from __future__ import annotations

import importlib
from typing import Any

from nppr.errors import DataError

__all__ = ["require"]


def require(module: str, extra: str) -> Any:
    """The module, or a `DataError` that says which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise DataError(
            f"`data` of this kind needs the package {package}, which cannot be imported."
            f" Install it: pip install 'nppr[{extra}]'"
        ) from error
