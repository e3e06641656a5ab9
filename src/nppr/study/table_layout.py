"""Tables of a study: rows and columns by axes, with our number and the paper's beside it.

A table that cannot be made is an error before anything runs.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import chain, count

from nppr.core.tally import Direction
from nppr.errors import SpecError, unknown
from nppr.report.printed_numbers import claim_text, rounded_out
from nppr.report.tables import Cell, Column, Table
from nppr.study.graph import Graph, StudyCell
from nppr.study.resources import digest_of
from nppr.study.study_file import (
    AXES,
    VALUES,
    Place,
    Study,
    TableEntry,
    ValueKind,
    text_of,
)
from nppr.study.study_records import StudyRecord

Label = tuple[str, ...]
"""Values of a row on the axes of its table."""

Filter = Mapping[str, tuple[str, ...]]
"""The texts that each axis may have."""


@dataclass(frozen=True)
class TableNumber:
    """Mean and standard deviation over evaluation seeds of the first fit.

    `lowest` and `highest` are the extreme means over fit seeds. `low` and `high` are the ends of the
    interval of the first seed, if the value has one, and `direction` states what it bounds.
    """

    mean: float
    std: float | None
    seeds: int
    fit_seeds: int
    lowest: float
    highest: float
    low: float | None = None
    high: float | None = None
    direction: Direction | None = None

    def text(self, decimals: int) -> str:
        """Return the number as a table shows it.

        >>> TableNumber(76.29, 0.04, 10, 2, 75.9, 76.4).text(2)
        '76.29 ± 0.04 [75.90, 76.40]'
        >>> TableNumber(76.29, 0.04, 10, 1, 0, 0, 72.5, 80.1, Direction.UPPER_BOUND).text(2)
        '≤ 80.10 (76.29 ± 0.04 observed)'
        """
        shown = f"{self.mean:.{decimals}f}"
        if self.std is not None:
            shown += f" ± {self.std:.{decimals}f}"
        if self.fit_seeds > 1:
            shown += f" [{self.lowest:.{decimals}f}, {self.highest:.{decimals}f}]"
        low = None if self.low is None else rounded_out(self.low, decimals, up=False)
        high = None if self.high is None else rounded_out(self.high, decimals, up=True)
        return claim_text(self.direction, shown, low, high, cell=True)

    def cells(self, decimals: int) -> Iterator[Cell]:
        """Yield the number for readers, then its other parts for programs."""
        yield Cell(self.mean, self.text(decimals))
        yield Cell(self.std, "")
        yield Cell((self.lowest, self.highest) if self.fit_seeds > 1 else None, "")
        yield Cell(None if self.low is None or self.high is None else (self.low, self.high), "")
        yield Cell(self.direction and self.direction.value, "")


@dataclass(frozen=True)
class Header:
    """A column: its heading, the value it shows, and the places it shows it of."""

    text: str
    value: str
    where: Filter

    @property
    def kind(self) -> ValueKind:
        """The kind of its value."""
        return VALUES[self.value]


@dataclass(frozen=True)
class StudyTable:
    """A table ready to be written: `numbers[row][column]`, None if nothing was measured there."""

    entry: TableEntry
    labels: tuple[Label, ...]
    headers: tuple[Header, ...]
    numbers: tuple[tuple[TableNumber | None, ...], ...]
    paper: tuple[tuple[str | float | None, ...], ...] | None

    def as_table(self) -> Table:
        """Return the table for readers and programs, with the paper's number beside ours.

        What readers see as parts of a number, such as its interval, are columns for programs.
        """
        columns = [Column(axis, axis.replace("_", " ")) for axis in self.entry.rows]
        taken = list(self.entry.rows)
        for header in self.headers:
            name = _column_name(header.text, taken)
            taken.append(name)
            columns += [
                Column(name, header.text, number=True),
                Column(f"{name}_std", "", number=True),
                Column(f"{name}_fit_seeds", "", number=True, interval=True),
                Column(name, "", number=True, interval=True),
                Column(f"{name}_direction", ""),
            ]
            if self.paper is not None:
                columns.append(Column(f"{name}_paper", "paper", number=True))
        rows = tuple(
            (*map(Cell.of, label), *self._row_cells(row)) for row, label in enumerate(self.labels)
        )
        paper = f" Paper: {self.entry.paper.citation}" if self.entry.paper else ""
        return Table((self.entry.title or self._describe()) + paper, tuple(columns), rows)

    def _describe(self) -> str:
        """Return the name of the table with the meaning of its numbers."""
        kinds = [header.kind for header in self.headers]
        parts = list(dict.fromkeys(kind.meaning for kind in kinds if kind.meaning))
        if self.entry.percent and any(kind.fraction for kind in kinds):
            parts.append("fractions in %")
        if any(kind.seeded for kind in kinds):
            parts.append("± is the standard deviation over evaluation seeds, not over inputs")
        return f"{self.entry.name}: {'; '.join(parts)}." if parts else self.entry.name

    def _row_cells(self, row: int) -> Iterator[Cell]:
        decimals = self.entry.decimals
        for column, number in enumerate(self.numbers[row]):
            yield from number.cells(decimals) if number else [Cell(None, "")] * 5
            if self.paper is not None:
                known = self.paper[row][column]
                is_number = isinstance(known, float | int)
                yield Cell(known, f"{known:.{decimals}f}") if is_number else Cell.of(known)

    def as_dict(self) -> dict[str, object]:
        """Return everything as plain values for JSON."""
        entry, absent = self.entry, [None] * len(self.labels)
        return {
            "name": entry.name,
            "title": entry.title,
            "rows": entry.rows,
            "columns": [header.text for header in self.headers],
            "values": [header.value for header in self.headers],
            "percent": entry.percent,
            "citation": entry.paper.citation if entry.paper else None,
            "entries": [
                {"labels": label, "ours": [each and asdict(each) for each in ours], "paper": paper}
                for label, ours, paper in zip(
                    self.labels, self.numbers, self.paper or absent, strict=True
                )
            ],
        }


def make_table(
    entry: TableEntry, places: Sequence[Place], records: Sequence[StudyRecord]
) -> StudyTable:
    """Fill a table: its rows and columns come from all planned places, its numbers from the records."""
    where = _filter_of(entry.where)
    places = [place for place in places if _fits(place, where)]
    headers = tuple(_headers_of(entry, places))
    shown = [place for place in places if any(_fits(place, header.where) for header in headers)]
    labels = _sort_labels([place.texts(entry.rows) for place in shown])
    axes, paper = len(entry.rows), None
    if entry.paper is not None:  # its rows in its order, then those that it does not have
        known = {tuple(map(str, row[:axes])): row[axes:] for row in entry.paper.rows}
        labels = tuple(dict.fromkeys((*known, *labels)))
        absent = [None] * len(headers)
        paper = tuple(tuple([*known.get(label, []), *absent][: len(headers)]) for label in labels)
    by_label: dict[Label, list[StudyRecord]] = {label: [] for label in labels}
    for record in records:
        if _fits(record.place, where):
            by_label.get(record.place.texts(entry.rows), []).append(record)
    numbers = tuple(
        tuple(_number_of(header, by_label[label], percent=entry.percent) for header in headers)
        for label in labels
    )
    return StudyTable(entry, labels, headers, numbers, paper)


def _sort_labels(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return each label once, sorted axis by axis; the values of an axis keep their first order."""
    axes = [list(dict.fromkeys(values)) for values in zip(*labels, strict=True)]

    def ranks(label: Label) -> list[int]:
        return [axis.index(part) for axis, part in zip(axes, label, strict=True)]

    return tuple(sorted(dict.fromkeys(labels), key=ranks))


def _number_of(
    header: Header, records: Sequence[StudyRecord], *, percent: bool
) -> TableNumber | None:
    """Return the number of a cell.

    A node that several measurements share, such as a corruption at two radii, counts once.
    """
    value, kind = header.value, header.kind
    factor = 100.0 if percent and kind.fraction else 1.0
    used = [each for each in records if value in each.values and _fits(each.place, header.where)]
    by_fit_seed: dict[int | None, dict[str | None, float]] = {}
    for record in used:
        seed = None if kind.of == "clean" else record.cell.fit_seed
        by_node = by_fit_seed.setdefault(seed, {})
        by_node[_node_of(record.cell, kind)] = factor * record.values[value].value
    if not by_fit_seed:
        return None
    first = list(next(iter(by_fit_seed.values())).values())
    means = [math.fsum(found.values()) / len(found) for found in by_fit_seed.values()]
    shown = [each.values[value] for each in used]
    interval = next((each.interval for each in shown if each.interval), None)
    return TableNumber(
        mean=means[0],
        std=statistics.stdev(first) if len(first) > 1 and kind.seeded else None,
        seeds=len(first),
        fit_seeds=len(by_fit_seed),
        lowest=min(means),
        highest=max(means),
        low=factor * interval[0] if interval else None,
        high=factor * interval[1] if interval else None,
        direction=next((each.direction for each in shown if each.direction), None),
    )


def _node_of(cell: StudyCell, kind: ValueKind) -> str | None:
    """Return the hash of the node that a value comes from, or of the clean answers."""
    return {"measure": cell.measure, "fit": cell.fit, "clean": cell.clean}[kind.of]


def _column_name(heading: str, taken: Sequence[str]) -> str:
    """Return a name of letters, digits and underscores that is not taken."""
    base = re.sub(r"[^a-z0-9]+", "_", heading.lower()).strip("_") or "value"
    numbered = (f"{base}_{number}" for number in count(2))
    return next(name for name in chain([base], numbered) if name not in taken)


def _headers_of(entry: TableEntry, places: Sequence[Place]) -> Iterator[Header]:
    """Yield the columns of a table: one for every combination of values on the axes in `by`."""
    for column in entry.columns:
        where = _filter_of(column.where)
        if not column.by:
            yield Header(column.header or column.value.replace("_", " "), column.value, where)
            continue
        fitting = (place for place in places if _fits(place, where))
        for texts in dict.fromkeys(place.texts(column.by) for place in fitting):
            own = {axis: (text,) for axis, text in zip(column.by, texts, strict=True)}
            heading = [column.header, *texts] if column.header else texts
            yield Header(" ".join(heading), column.value, {**where, **own})


def _filter_of(where: Mapping[str, object]) -> Filter:
    return {
        axis: tuple(map(text_of, value if isinstance(value, list) else [value]))
        for axis, value in where.items()
    }


def _fits(place: Place, where: Filter) -> bool:
    """Return whether a place passes a filter."""
    texts = place.texts(where)
    return all(text in values for text, values in zip(texts, where.values(), strict=True))


def require_tables(study: Study, graph: Graph) -> None:
    """Raise `SpecError` if a filter names an absent value, or a number would mix settings."""

    @cache
    def settings_of(key: str) -> str:
        """Return a hash of everything that determines a node but the seeds."""
        if key not in graph.nodes:  # clean answers have no seed
            return key
        node = graph.nodes[key]
        settings = {name: value for name, value in node.identity().items() if name != "seed"}
        return digest_of([node.kind, settings, [settings_of(need) for need in node.needs]])

    for entry in study.tables:
        for filters in (entry.where, *(column.where for column in entry.columns)):
            _require_known(entry, _filter_of(filters), graph.cells)
        where = _filter_of(entry.where)
        cells = [cell for cell in graph.cells if _fits(cell.place, where)]
        headers = list(_headers_of(entry, [cell.place for cell in cells]))
        _require_lengths(entry, len(headers))
        for header in headers:
            found: dict[Label, dict[str, Place]] = {}
            for cell in cells:
                node, place = _node_of(cell, header.kind), cell.place
                has_value = "stress" not in header.value or place.source.split(":")[0] == "stress"
                if node is not None and has_value and _fits(place, header.where):
                    settings = found.setdefault(place.texts(entry.rows), {})
                    settings.setdefault(settings_of(node), place)
            for different in found.values():
                _require_one(entry, header, different.values())


def _require_known(entry: TableEntry, where: Filter, cells: Sequence[StudyCell]) -> None:
    for axis, values in where.items():
        known = {cell.place.texts([axis])[0] for cell in cells}
        for value in values:
            if value not in known:
                argument = f"where.{axis} of table {entry.name}"
                raise unknown(argument, value, known - {""} or ["(none)"])


def _require_lengths(entry: TableEntry, columns: int) -> None:
    axes = len(entry.rows)
    for row in entry.paper.rows if entry.paper else ():
        if not axes <= len(row) <= axes + columns:
            raise SpecError(
                f"`paper.rows` of table {entry.name!r} must have {axes} labels and at most {columns}"
                f" numbers, got {len(row)} entries in {row[:axes]}."
            )


def _require_one(entry: TableEntry, header: Header, different: Collection[Place]) -> None:
    if len(different) > 1:
        axes = [axis for axis in AXES if len({place.texts([axis]) for place in different}) > 1]
        named = ", ".join(axes) or "grid (and give the grids names)"
        raise SpecError(
            f"`tables` must show one setting in each number, column {header.text!r} of"
            f" {entry.name!r} mixes {len(different)}. Add them to rows, by or where: {named}."
        )
