"""Identical images in two parts: an input that was fitted on says too much about itself."""

from __future__ import annotations

from nppr.data.base import Data, Part
from nppr.types import Split

__all__ = ["overlaps"]


def overlaps(data: Data) -> dict[tuple[str, str], int]:
    """For each pair of parts, how many inputs of the second are also in the first.

    Images are the same when what is stored is the same, byte for byte; nothing is decoded.

    >>> from nppr.data import load_data
    >>> overlaps(load_data("digits"))
    {('fit', 'select'): 0, ('fit', 'evaluate'): 0, ('select', 'evaluate'): 0}
    """
    fit, select, evaluate = map(_digests, (data.fit, data.select, data.evaluate))
    return {
        ("fit", "select"): _shared(fit, select),
        ("fit", "evaluate"): _shared(fit, evaluate),
        ("select", "evaluate"): _shared(select, evaluate),
    }


def _digests(part: Part[Split]) -> list[bytes]:
    return [part.images.digest(index) for index in part.indices.tolist()]


def _shared(first: list[bytes], second: list[bytes]) -> int:
    known = set(first)
    return sum(digest in known for digest in second)
