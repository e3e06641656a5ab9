"""Tables of a study: rows and columns by axes, our number, and the paper's beside it."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nppr.report.exports import Cell, Column, Table
from nppr.study.axes import SEEDED, SHARES
from nppr.study.places import Header, filter_of, fits, headers_of, label_of, node_of
from nppr.study.records import Record
from nppr.study.spec import TableEntry

__all__ = ["Entry", "StudyTable", "made_table"]


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

    def exported(self) -> Table:
        """The table for readers and programs, the paper's number to the right of ours.

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

    def as_dict(self) -> dict[str, Any]:
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


def made_table(
    entry: TableEntry, places: Sequence[Mapping[str, Any]], records: Sequence[Record]
) -> StudyTable:
    """Fill a table: its rows and columns are of all places planned, its numbers of the records."""
    where = filter_of(entry.where)
    kept = [place for place in places if fits(place, where)]
    headers = tuple(header for column in entry.columns for header in headers_of(column, kept))
    shown = [place for place in kept if any(fits(place, header.where) for header in headers)]
    labels = _ordered([label_of(place, entry.rows) for place in shown])
    if entry.paper is not None:  # its order, then what it does not have
        keys = len(entry.rows)
        known = (tuple(str(part) for part in row[:keys]) for row in entry.paper.rows)
        labels = tuple(dict.fromkeys((*known, *labels)))
    by_label: dict[tuple[str, ...], list[Record]] = {label: [] for label in labels}
    for record in records:
        if fits(record.place, where):
            by_label.get(label_of(record.place, entry.rows), []).append(record)
    entries = tuple(
        tuple(
            _entry(
                [record for record in by_label[label] if fits(record.place, header.where)],
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


def _entry(records: Sequence[Record], value: str, *, percent: bool) -> Entry | None:
    """Mean over seeds of the first fit seed, and the lowest and highest mean over fit seeds.

    A node that stands in several cells, such as a corruption at two radii, counts once.
    """
    factor = 100.0 if percent and value in SHARES else 1.0
    of_fits: dict[int | None, dict[str | None, float]] = {}
    for record in records:
        if value in record.values:
            seed = None if value == "accuracy" else record.cell.fit_seed
            node = node_of(record.cell, value)
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
