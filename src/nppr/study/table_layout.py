"""Tables of a study: rows and columns by axes, our number, and the paper's beside it.

Tables that cannot be made are refused before anything runs.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache as remember

from nppr.core.tally import Direction
from nppr.errors import SpecError, unknown
from nppr.report.printed_numbers import claim_text, rounded_out
from nppr.report.tables import Cell, Column, Table
from nppr.study.graph import Cell as Measurement
from nppr.study.graph import Graph
from nppr.study.resources import digest_of
from nppr.study.study_file import AXES, VALUES, Place, Study, TableEntry, Value
from nppr.study.study_file import Column as ColumnEntry
from nppr.study.study_records import StudyRecord

Label = tuple[str, ...]
Filter = Mapping[str, tuple[str, ...]]
"""The texts that each axis may have."""


@dataclass(frozen=True)
class Number:
    """A number of a table: mean and standard deviation over evaluation seeds of the first fit.

    `lowest` and `highest` are those over fit seeds, where there are several; `low` and `high` the
    interval of the first seed, where the value has one; `direction` states what it bounds.
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
        """As a table shows it.

        >>> Number(76.29, 0.04, 10, 2, 75.9, 76.4).text(2)
        '76.29 ± 0.04 [75.90, 76.40]'
        >>> Number(76.29, 0.04, 10, 1, 0, 0, 72.5, 80.1, Direction.UPPER_BOUND).text(2)
        '≤ 80.10 (76.29 ± 0.04 observed)'
        """
        shown = f"{self.mean:.{decimals}f}"
        if self.std is not None:
            shown += f" ± {self.std:.{decimals}f}"
        if self.fit_seeds > 1:
            shown += f" [{self.lowest:.{decimals}f}, {self.highest:.{decimals}f}]"
        ends = (
            None if end is None else rounded_out(end, decimals, up=up)
            for end, up in ((self.low, False), (self.high, True))
        )
        return claim_text(self.direction, shown, *ends, cell=True)


@dataclass(frozen=True)
class Header:
    """A column: what it is called, which value it shows, of which places."""

    text: str
    value: str
    where: Filter

    @property
    def kind(self) -> Value:
        """What is known of the value."""
        return VALUES[self.value]


@dataclass(frozen=True)
class StudyTable:
    """A table ready to be written: `entries[row][column]`, None where nothing was measured."""

    entry: TableEntry
    labels: tuple[Label, ...]
    headers: tuple[Header, ...]
    entries: tuple[tuple[Number | None, ...], ...]
    paper: tuple[tuple[str | float | None, ...], ...] | None

    def as_table(self) -> Table:
        """The table for readers and programs, the paper's number beside ours.

        Standard deviations, the spread over fit seeds, the interval and the direction are columns of
        their own for programs; for readers they are part of the number.
        """
        names = _names([header.text for header in self.headers], self.entry.rows)
        columns = [Column(axis, axis.replace("_", " ")) for axis in self.entry.rows]
        for name, header in zip(names, self.headers, strict=True):
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
            (*map(Cell.of, label), *self._cells(number)) for number, label in enumerate(self.labels)
        )
        title = self.entry.title or self._described()
        paper = f" Paper: {self.entry.paper.citation}" if self.entry.paper else ""
        return Table(title + paper, tuple(columns), rows)

    def _described(self) -> str:
        """The name, and what its numbers are."""
        kinds = [header.kind for header in self.headers]
        parts = list(dict.fromkeys(kind.meaning for kind in kinds if kind.meaning))
        if self.entry.percent and any(kind.fraction for kind in kinds):
            parts.append("fractions in %")
        if any(kind.seeded for kind in kinds):
            parts.append("± is the standard deviation over evaluation seeds, not over inputs")
        return f"{self.entry.name}: {'; '.join(parts)}." if parts else self.entry.name

    def _cells(self, row: int) -> Iterator[Cell]:
        decimals = self.entry.decimals
        for column, number in enumerate(self.entries[row]):
            if number is None:
                yield from [Cell(None, "")] * 5
            else:
                spread = (number.lowest, number.highest) if number.fit_seeds > 1 else None
                yield Cell(number.mean, number.text(decimals))
                yield Cell(number.std, "")
                yield Cell(spread, "")
                ends = number.low, number.high
                yield Cell(None if ends[0] is None or ends[1] is None else (ends[0], ends[1]), "")
                yield Cell(number.direction and number.direction.value, "")
            if self.paper is not None:
                known = self.paper[row][column]
                is_number = isinstance(known, float | int)
                yield Cell(known, f"{known:.{decimals}f}") if is_number else Cell.of(known)

    def as_dict(self) -> dict[str, object]:
        """Everything, for JSON."""
        entry, nothing = self.entry, [None] * len(self.labels)
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
                    self.labels, self.entries, self.paper or nothing, strict=True
                )
            ],
        }


def make_table(
    entry: TableEntry, places: Sequence[Place], records: Sequence[StudyRecord]
) -> StudyTable:
    """Fill a table: its rows and columns are of all places planned, its numbers of the records."""
    where = _filter_of(entry.where)
    kept = [place for place in places if _fits(place, where)]
    headers = tuple(header for column in entry.columns for header in _headers_of(column, kept))
    shown = [place for place in kept if any(_fits(place, header.where) for header in headers)]
    labels = _ordered([place.texts(entry.rows) for place in shown])
    keys, paper = len(entry.rows), None
    if entry.paper is not None:  # its order of rows, then what it does not have
        known = {tuple(map(str, row[:keys])): row[keys:] for row in entry.paper.rows}
        labels = tuple(dict.fromkeys((*known, *labels)))
        nothing = [None] * len(headers)
        paper = tuple(tuple([*known.get(label, []), *nothing][: len(headers)]) for label in labels)
    by_label: dict[Label, list[StudyRecord]] = {label: [] for label in labels}
    for record in records:
        if _fits(record.place, where):
            by_label.get(record.place.texts(entry.rows), []).append(record)
    entries = tuple(
        tuple(_number(header, by_label[label], percent=entry.percent) for header in headers)
        for label in labels
    )
    return StudyTable(entry, labels, headers, entries, paper)


def _ordered(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Labels once each, by the first axis, then the second and so on, each as its values come."""
    axes = [list(dict.fromkeys(values)) for values in zip(*labels, strict=True)]
    return tuple(
        sorted(
            dict.fromkeys(labels),
            key=lambda label: [axis.index(part) for axis, part in zip(axes, label, strict=True)],
        )
    )


def _number(header: Header, records: Sequence[StudyRecord], *, percent: bool) -> Number | None:
    """Mean over seeds of the first fit seed, and the lowest and highest mean over fit seeds.

    A node that several cells share, such as a corruption at two radii, counts once.
    """
    value, kind = header.value, header.kind
    factor = 100.0 if percent and kind.fraction else 1.0
    used = [each for each in records if value in each.values and _fits(each.place, header.where)]
    of_fits: dict[int | None, dict[str | None, float]] = {}
    for record in used:
        seed = None if kind.of == "clean" else record.cell.fit_seed
        of_fits.setdefault(seed, {})[_origin(record.cell, kind)] = factor * record.values[value]
    if not of_fits:
        return None
    first = list(next(iter(of_fits.values())).values())
    means = [math.fsum(found.values()) / len(found) for found in of_fits.values()]
    interval = next((each.intervals[value] for each in used if value in each.intervals), None)
    direction = next((each.directions[value] for each in used if value in each.directions), None)
    return Number(
        mean=means[0],
        std=statistics.stdev(first) if len(first) > 1 and kind.seeded else None,
        seeds=len(first),
        fit_seeds=len(of_fits),
        lowest=min(means),
        highest=max(means),
        low=None if interval is None else factor * interval[0],
        high=None if interval is None else factor * interval[1],
        direction=direction,
    )


def _origin(cell: Measurement, kind: Value) -> str | None:
    """What a value comes from: a node, if there is one, or the clean answers of a classifier."""
    return {"measure": cell.measure, "fit": cell.fit, "clean": cell.clean}[kind.of]


def _names(headings: Sequence[str], taken: Sequence[str]) -> list[str]:
    """A name of letters, digits and underscores for every heading, each once."""
    names: list[str] = []
    for heading in headings:
        base = re.sub(r"[^a-z0-9]+", "_", heading.lower()).strip("_") or "value"
        name, number = base, 2
        while name in (*names, *taken):
            name, number = f"{base}_{number}", number + 1
        names.append(name)
    return names


def _headers_of(column: ColumnEntry, places: Sequence[Place]) -> list[Header]:
    """The columns that an entry describes, among these places."""
    where = _filter_of(column.where)
    if not column.by:
        return [Header(column.header or column.value.replace("_", " "), column.value, where)]
    found = dict.fromkeys(place.texts(column.by) for place in places if _fits(place, where))
    return [
        Header(
            " ".join([column.header, *values]) if column.header else " ".join(values),
            column.value,
            {**where, **{axis: (value,) for axis, value in zip(column.by, values, strict=True)}},
        )
        for values in found
    ]


def _filter_of(where: Mapping[str, object]) -> Filter:
    return {
        axis: tuple(
            f"{each:g}" if isinstance(each, float) else str(each)
            for each in (value if isinstance(value, list) else [value])
        )
        for axis, value in where.items()
    }


def _fits(place: Place, where: Filter) -> bool:
    """Whether a place passes a filter."""
    texts = place.texts(where)
    return all(text in values for text, values in zip(texts, where.values(), strict=True))


def require_tables(study: Study, graph: Graph) -> None:
    """Raise `SpecError` where a filter names what is not there, or a number would mix settings."""

    @remember
    def work_of(hash_: str) -> str:
        """A hash of everything that determines a node but the seeds of measurements and fits."""
        if hash_ not in graph.nodes:  # clean answers have no seed
            return hash_
        node = graph.nodes[hash_]
        settings = {name: each for name, each in node.determined_by.items() if name != "seed"}
        needs = {role: work_of(need) for role, need in node.needs.items()}
        return digest_of([node.kind, settings, needs])

    for entry in study.tables:
        for filters in (entry.where, *(column.where for column in entry.columns)):
            _require_known(entry, _filter_of(filters), graph.cells)
        where = _filter_of(entry.where)
        cells = [cell for cell in graph.cells if _fits(cell.place, where)]
        places = [cell.place for cell in cells]
        headers = [header for column in entry.columns for header in _headers_of(column, places)]
        _require_lengths(entry, len(headers))
        for header in headers:
            found: dict[Label, dict[str, Place]] = {}
            for cell in cells:
                origin = _origin(cell, header.kind)
                if origin is not None and _may_have(header, cell.place):
                    settings = found.setdefault(cell.place.texts(entry.rows), {})
                    settings.setdefault(work_of(origin), cell.place)
            for different in found.values():
                _require_one(entry, header, list(different.values()))


def _require_known(entry: TableEntry, where: Filter, cells: Sequence[Measurement]) -> None:
    for axis, values in where.items():
        known = {cell.place.texts([axis])[0] for cell in cells}
        for value in values:
            if value not in known:
                argument = f"where.{axis} of table {entry.name}"
                raise unknown(argument, value, known - {""} or ["(none)"])


def _require_lengths(entry: TableEntry, columns: int) -> None:
    keys = len(entry.rows)
    for row in entry.paper.rows if entry.paper else ():
        if not keys <= len(row) <= keys + columns:
            raise SpecError(
                f"`paper.rows` of table {entry.name!r} must have {keys} labels and at most {columns}"
                f" numbers, got {len(row)} entries in {row[:keys]}."
            )


def _may_have(header: Header, place: Place) -> bool:
    """Whether a measurement belongs to a column and may have its value."""
    stressed = "stress" not in header.value or place.source.partition(":")[0] == "stress"
    return stressed and _fits(place, header.where)


def _require_one(entry: TableEntry, header: Header, different: Sequence[Place]) -> None:
    if len(different) > 1:
        axes = [axis for axis in AXES if len({place.texts([axis]) for place in different}) > 1]
        named = ", ".join(axes) or "grid (and give the grids names)"
        raise SpecError(
            f"`tables` must show one setting in each number, column {header.text!r} of"
            f" {entry.name!r} mixes {len(different)}. Add them to rows, by or where: {named}."
        )
