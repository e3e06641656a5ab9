"""Tables of a study: rows and columns by axes, our number, and the paper's beside it.

Tables that cannot be made are refused before anything runs.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nppr.errors import SpecError, unknown
from nppr.report.tables import Cell, Column, Table
from nppr.study.graph import Cell as Measurement
from nppr.study.graph import Graph, Place, digest_of
from nppr.study.study_file import AXES, Study, TableEntry
from nppr.study.study_file import Column as ColumnEntry
from nppr.study.study_records import StudyRecord

FRACTIONS = (
    "accuracy", "normalised", "robustness", "entropy_ratio", "max_weight", "min_weight",
    "std_weight", "fit_pr",
)  # fmt: skip
"""Values that a table shows in percent."""

SEEDED = ("normalised", "robustness", "stress", "normalised_stress", "seconds")
"""Values that differ between evaluation seeds: a table shows their standard deviation."""

OF_FITS = (
    "entropy_ratio", "max_weight", "min_weight", "std_weight", "realised_std", "fit_loss", "fit_pr",
    "fit_calls", "fit_seconds", "fit_seconds_per_epoch",
)  # fmt: skip
"""Values of a fit, the same wherever it is measured."""

STRESS = ("stress", "normalised_stress")


@dataclass(frozen=True)
class Entry:
    """A number of a table: mean and standard deviation over evaluation seeds of the first fit.

    `lowest` and `highest` are those over fit seeds, where there are several; `low` and `high` the
    interval of the first seed, where the value has one.
    """

    mean: float
    std: float | None
    seeds: int
    fit_seeds: int
    lowest: float
    highest: float
    low: float | None = None
    high: float | None = None

    def text(self, decimals: int) -> str:
        """As a table shows it.

        >>> Entry(76.29, 0.04, 10, 2, 75.9, 76.4).text(2)
        '76.29 ± 0.04 [75.90, 76.40]'
        """
        shown = f"{self.mean:.{decimals}f}"
        if self.std is not None:
            shown += f" ± {self.std:.{decimals}f}"
        if self.fit_seeds > 1:
            shown += f" [{self.lowest:.{decimals}f}, {self.highest:.{decimals}f}]"
        return shown


@dataclass(frozen=True)
class StudyTable:
    """A table ready to be written: `entries[row][column]`, None where nothing was measured."""

    entry: TableEntry
    labels: tuple[tuple[str, ...], ...]
    headers: tuple[Header, ...]
    entries: tuple[tuple[Entry | None, ...], ...]
    paper: tuple[tuple[str | float | None, ...], ...] | None

    def as_table(self) -> Table:
        """The table for readers and programs, the paper's number beside ours.

        Standard deviations and the spread over fit seeds are columns of their own for programs; for
        readers they stand beside the number.
        """
        names = _names([header.text for header in self.headers], self.entry.rows)
        columns = [Column(axis, axis.replace("_", " ")) for axis in self.entry.rows]
        for name, header in zip(names, self.headers, strict=True):
            columns.append(Column(name, header.text, number=True))
            columns.append(Column(f"{name}_std", "", number=True))
            columns.append(Column(f"{name}_fit_seeds", "", number=True, interval=True))
            if self.paper is not None:
                columns.append(Column(f"{name}_paper", "paper", number=True))
        rows = tuple(
            (*(Cell.of(part) for part in label), *self._cells(number))
            for number, label in enumerate(self.labels)
        )
        return Table(self.caption, tuple(columns), rows)

    @property
    def caption(self) -> str:
        """The title, and where the paper's numbers come from."""
        title = self.entry.title or self.entry.name
        return title if self.entry.paper is None else f"{title} Paper: {self.entry.paper.citation}"

    def _cells(self, number: int) -> Iterator[Cell]:
        decimals = self.entry.decimals
        for column, entry in enumerate(self.entries[number]):
            if entry is None:
                yield from (Cell(None, ""), Cell(None, ""), Cell(None, ""))
            else:
                yield Cell(entry.mean, entry.text(decimals))
                yield Cell(entry.std, "")
                spread = (entry.lowest, entry.highest)
                yield Cell(spread if entry.fit_seeds > 1 else None, "")
            if self.paper is not None:
                known = self.paper[number][column]
                yield Cell(known, _shown(known, decimals))

    def as_dict(self) -> dict[str, object]:
        """Everything, for JSON."""
        return {
            "name": self.entry.name,
            "title": self.entry.title,
            "rows": list(self.entry.rows),
            "columns": [header.text for header in self.headers],
            "values": [header.value for header in self.headers],
            "percent": self.entry.percent,
            "citation": self.entry.paper.citation if self.entry.paper else None,
            "entries": [
                {
                    "labels": list(label),
                    "ours": [None if each is None else vars(each) for each in self.entries[number]],
                    "paper": None if self.paper is None else list(self.paper[number]),
                }
                for number, label in enumerate(self.labels)
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
    labels = _ordered([_label_of(place, entry.rows) for place in shown])
    if entry.paper is not None:  # its order, then what it does not have
        keys = len(entry.rows)
        known = (tuple(str(part) for part in row[:keys]) for row in entry.paper.rows)
        labels = tuple(dict.fromkeys((*known, *labels)))
    by_label: dict[tuple[str, ...], list[StudyRecord]] = {label: [] for label in labels}
    for record in records:
        if _fits(record.place, where):
            by_label.get(_label_of(record.place, entry.rows), []).append(record)
    entries = tuple(
        tuple(
            _entry(
                [record for record in by_label[label] if _fits(record.place, header.where)],
                header.value,
                percent=entry.percent,
            )
            for header in headers
        )
        for label in labels
    )
    return StudyTable(entry, labels, headers, entries, _paper(entry, labels, len(headers)))


def _ordered(labels: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Labels once each, by the first axis, then the second and so on, each as its values come."""
    axes = [list(dict.fromkeys(values)) for values in zip(*labels, strict=True)]
    return tuple(
        sorted(
            dict.fromkeys(labels),
            key=lambda label: [axis.index(part) for axis, part in zip(axes, label, strict=True)],
        )
    )


def _entry(records: Sequence[StudyRecord], value: str, *, percent: bool) -> Entry | None:
    """Mean over seeds of the first fit seed, and the lowest and highest mean over fit seeds.

    A node that several cells share, such as a corruption at two radii, counts once.
    """
    factor = 100.0 if percent and value in FRACTIONS else 1.0
    of_fits: dict[int | None, dict[str | None, float]] = {}
    for record in records:
        if value in record.values:
            seed = None if value == "accuracy" else record.cell.fit_seed
            node = _node_of(record.cell, value)
            of_fits.setdefault(seed, {})[node] = factor * record.values[value]
    if not of_fits:
        return None
    first = list(next(iter(of_fits.values())).values())
    means = [math.fsum(found.values()) / len(found) for found in of_fits.values()]
    interval = next((r.intervals[value] for r in records if value in r.intervals), None)
    return Entry(
        mean=means[0],
        std=statistics.stdev(first) if len(first) > 1 and value in SEEDED else None,
        seeds=len(first),
        fit_seeds=len(of_fits),
        lowest=min(means),
        highest=max(means),
        low=None if interval is None else factor * interval[0],
        high=None if interval is None else factor * interval[1],
    )


def _paper(
    entry: TableEntry, labels: Sequence[tuple[str, ...]], columns: int
) -> tuple[tuple[str | float | None, ...], ...] | None:
    if entry.paper is None:
        return None
    keys = len(entry.rows)
    known = {tuple(str(part) for part in row[:keys]): row[keys:] for row in entry.paper.rows}
    return tuple(tuple([*known.get(label, []), *[None] * columns][:columns]) for label in labels)


def _shown(value: str | float | None, decimals: int) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else f"{value:.{decimals}f}"


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


@dataclass(frozen=True)
class Header:
    """A column: what it is called, which value it shows, of which records."""

    text: str
    value: str
    where: Mapping[str, tuple[str, ...]]


def _node_of(cell: Measurement, value: str) -> str | None:
    """What a value comes from: a node, if there is one, or the clean answers of a classifier."""
    if value == "accuracy":
        return cell.clean
    return cell.fit if value in OF_FITS else cell.measure


def _headers_of(column: ColumnEntry, places: Sequence[Place]) -> list[Header]:
    """The columns that an entry describes, among these places."""
    where = _filter_of(column.where)
    name = column.header or column.value.replace("_", " ")
    if not column.by:
        return [Header(name, column.value, where)]
    found = dict.fromkeys(_label_of(place, column.by) for place in places if _fits(place, where))
    return [
        Header(
            " ".join([*([column.header] if column.header else []), *values]),
            column.value,
            {**where, **{axis: (value,) for axis, value in zip(column.by, values, strict=True)}},
        )
        for values in found
    ]


def _filter_of(where: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The texts that each axis may have."""
    return {
        axis: tuple(_text_of(each) for each in (value if isinstance(value, list) else [value]))
        for axis, value in where.items()
    }


def _fits(place: Place, where: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a place passes a filter."""
    return all(_text_of(place[axis]) in values for axis, values in where.items())


def _label_of(place: Place, axes: Sequence[str]) -> tuple[str, ...]:
    """A place on these axes, as a table shows it."""
    return tuple(_text_of(place[axis]) for axis in axes)


def _text_of(value: object) -> str:
    """A value of an axis as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def require_tables(study: Study, graph: Graph) -> None:
    """Raise `SpecError` where a filter names what is not there, or a number would mix settings."""
    work = _Work(graph)
    for entry in study.tables:
        _require_known(entry, graph.cells)
        where = _filter_of(entry.where)
        cells = [cell for cell in graph.cells if _fits(cell.place, where)]
        places = [cell.place for cell in cells]
        headers = [header for column in entry.columns for header in _headers_of(column, places)]
        _require_lengths(entry, len(headers))
        for header in headers:
            _require_one(entry, header, cells, work)


class _Work:
    """The work of nodes, whatever their seeds."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[str, str] = {}

    def of(self, hash_: str) -> str:
        """A hash of everything that determines a node but the seeds of measurements and fits."""
        if hash_ not in self._graph.nodes:  # clean answers have no seed
            return hash_
        if hash_ not in self._known:
            node = self._graph.nodes[hash_]
            settings = {name: each for name, each in node.determined_by.items() if name != "seed"}
            needs = {role: self.of(need) for role, need in node.needs.items()}
            self._known[hash_] = digest_of([node.kind, settings, needs])
        return self._known[hash_]


def _require_known(entry: TableEntry, cells: Sequence[Measurement]) -> None:
    for where in (entry.where, *(column.where for column in entry.columns)):
        for axis, values in _filter_of(where).items():
            known = dict.fromkeys(_text_of(cell.place[axis]) for cell in cells)
            for value in values:
                if value not in known:
                    named = [each for each in known if each]
                    raise unknown(f"where.{axis} of table {entry.name}", value, named or ["(none)"])


def _require_lengths(entry: TableEntry, columns: int) -> None:
    keys = len(entry.rows)
    for row in entry.paper.rows if entry.paper else ():
        if not keys <= len(row) <= keys + columns:
            raise SpecError(
                f"`paper.rows` of table {entry.name!r} must have {keys} labels and at most {columns}"
                f" numbers, got {len(row)} entries in {row[:keys]}."
            )


def _require_one(
    entry: TableEntry, header: Header, cells: Sequence[Measurement], work: _Work
) -> None:
    found: dict[tuple[str, ...], dict[str, Place]] = {}
    for cell in _of_value(header, cells):
        node = _node_of(cell, header.value)
        if node is not None:
            label = _label_of(cell.place, entry.rows)
            found.setdefault(label, {}).setdefault(work.of(node), cell.place)
    for different in found.values():
        if len(different) > 1:
            axes = [
                axis for axis in AXES if len({_text_of(p[axis]) for p in different.values()}) > 1
            ]
            named = ", ".join(axes) or "grid (and give the grids names)"
            raise SpecError(
                f"`tables` must show one setting in each number, column {header.text!r} of"
                f" {entry.name!r} mixes {len(different)}. Add them to rows, by or where: {named}."
            )


def _of_value(header: Header, cells: Sequence[Measurement]) -> Iterator[Measurement]:
    """The measurements that belong to a column and may have its value."""
    for cell in cells:
        stressed = (
            header.value not in STRESS or str(cell.place["source"]).partition(":")[0] == "stress"
        )
        if stressed and _fits(cell.place, header.where):
            yield cell
