"""Data sets of the Hugging Face hub, of its cache, or of a local folder, through `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nppr.data.arrow import columns_of, load_tables
from nppr.data.base import Data
from nppr.data.extras import require
from nppr.data.guard import reading
from nppr.data.parts import TRAIN, choose_parts
from nppr.errors import DataError

__all__ = ["load_hf"]

ADVICE = (
    "Give a folder, or the name of a data set of the hub that this machine can reach or has cached."
)
SAVED = ("dataset_dict.json", "dataset_info.json")
"""Files that only a folder written by `save_to_disk` has at its root."""


def load_hf(name: str, split: str | None, resize: int | None) -> Data:
    """Encoded images stay in the Arrow files of `datasets`, which are mapped, not read."""
    library = require("datasets", "hf")
    with reading(f"hf:{name}", ADVICE), _quiet(library):
        try:
            found = _open(library, name)
        except FileNotFoundError as error:
            raise DataError(f"`data` was not found: hf:{name}. {ADVICE}") from error
        sets = dict(found) if isinstance(found, dict) else {str(found.split or TRAIN[0]): found}
    plan = choose_parts(sets, split)
    features = sets[plan.names[0]].features
    columns = columns_of(features.arrow_schema, f"hf:{name}")
    with reading(f"hf:{name}", ADVICE):
        tables = {own: sets[own].with_format("arrow")[:] for own in plan.names}
    return load_tables(f"hf:{name}", plan, tables, columns, Path(), resize)


def _open(library: Any, name: str) -> Any:
    if any((Path(name) / file).is_file() for file in SAVED):
        return library.load_from_disk(name)
    return library.load_dataset(name)


@contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """No progress bars of another library: progress belongs to the command line."""
    shown = not library.are_progress_bars_disabled()
    library.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            library.enable_progress_bars()
