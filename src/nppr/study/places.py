"""Which measurements stand in which row and column of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nppr.study.axes import OF_FITS
from nppr.study.graph import Cell
from nppr.study.spec import Column

__all__ = ["Header", "filter_of", "fits", "headers_of", "label_of", "node_of", "text_of"]


@dataclass(frozen=True)
class Header:
    """A column: what it is called, which value it shows, of which records."""

    text: str
    value: str
    where: Mapping[str, tuple[str, ...]]


def node_of(cell: Cell, value: str) -> str | None:
    """The node that a value of a cell comes from, if it has one."""
    if value == "accuracy":
        return cell.clean
    return cell.fit if value in OF_FITS else cell.measure


def headers_of(column: Column, places: Sequence[Mapping[str, Any]]) -> list[Header]:
    """The columns that an entry stands for, among these places."""
    where = filter_of(column.where)
    name = column.header or column.value.replace("_", " ")
    if not column.by:
        return [Header(name, column.value, where)]
    found = dict.fromkeys(label_of(place, column.by) for place in places if fits(place, where))
    return [
        Header(
            " ".join([*([column.header] if column.header else []), *values]),
            column.value,
            {**where, **{axis: (value,) for axis, value in zip(column.by, values, strict=True)}},
        )
        for values in found
    ]


def filter_of(where: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The texts that each axis may have."""
    return {
        axis: tuple(text_of(each) for each in (value if isinstance(value, list) else [value]))
        for axis, value in where.items()
    }


def fits(place: Mapping[str, Any], where: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a place passes a filter."""
    return all(text_of(place[axis]) in values for axis, values in where.items())


def label_of(place: Mapping[str, Any], axes: Sequence[str]) -> tuple[str, ...]:
    """Where a place stands on these axes, as a table shows it."""
    return tuple(text_of(place[axis]) for axis in axes)


def text_of(value: Any) -> str:
    """A value of an axis as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)
