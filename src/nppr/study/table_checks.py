"""Tables that cannot be made are refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nppr.errors import SpecError, unknown
from nppr.study.axes import AXES
from nppr.study.graph import Cell, Graph
from nppr.study.hashing import digest_of
from nppr.study.places import Header, filter_of, fits, headers_of, label_of, node_of, text_of
from nppr.study.spec import StudySpec, TableEntry

__all__ = ["require_tables"]

STRESS = ("stress", "normalised_stress")


def require_tables(spec: StudySpec, graph: Graph) -> None:
    """Raise `SpecError` where a filter names what is not there, or a number would mix settings."""
    work = _Work(graph)
    for entry in spec.tables:
        _require_known(entry, graph.cells)
        where = filter_of(entry.where)
        cells = [cell for cell in graph.cells if fits(cell.place, where)]
        places = [cell.place for cell in cells]
        headers = [header for column in entry.columns for header in headers_of(column, places)]
        _require_lengths(entry, len(headers))
        for header in headers:
            _require_one(entry, header, cells, work)


class _Work:
    """What nodes do, whatever their seeds."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[str, str] = {}

    def of(self, hash_: str) -> str:
        """A hash of everything that determines a node but the seeds of measurements and fits."""
        if hash_ not in self._known:
            node = self._graph.nodes[hash_]
            settings = {name: each for name, each in node.determined_by.items() if name != "seed"}
            needs = {role: self.of(need) for role, need in node.needs.items()}
            self._known[hash_] = digest_of([node.kind, settings, needs])
        return self._known[hash_]


def _require_known(entry: TableEntry, cells: Sequence[Cell]) -> None:
    for where in (entry.where, *(column.where for column in entry.columns)):
        for axis, values in filter_of(where).items():
            known = dict.fromkeys(text_of(cell.place[axis]) for cell in cells)
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


def _require_one(entry: TableEntry, header: Header, cells: Sequence[Cell], work: _Work) -> None:
    found: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for cell in _of_value(header, cells):
        node = node_of(cell, header.value)
        if node is not None:
            label = label_of(cell.place, entry.rows)
            found.setdefault(label, {}).setdefault(work.of(node), cell.place)
    for different in found.values():
        if len(different) > 1:
            axes = [
                axis for axis in AXES if len({text_of(p[axis]) for p in different.values()}) > 1
            ]
            named = ", ".join(axes) or "grid (and give the grids names)"
            raise SpecError(
                f"`tables` must show one setting in each number, column {header.text!r} of"
                f" {entry.name!r} mixes {len(different)}. Add them to rows, by or where: {named}."
            )


def _of_value(header: Header, cells: Sequence[Cell]) -> Iterator[Cell]:
    """The cells that stand in a column and may have its value."""
    for cell in cells:
        stressed = header.value not in STRESS or str(cell.place["source"]).startswith("stress")
        if stressed and fits(cell.place, header.where):
            yield cell
