"""How every number of a page is printed, and where in `report.json` it stands.

A number is a `<data>` element whose `data-pointer` is its place in the file (RFC 6901), so that a test
or a reader's script can compare all of them. Numbers of results also say `data-source`,
`data-metric`, `data-method`, `data-claim` and `data-field`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from nppr.report.quoting import interval_of
from nppr.report.schema import Report, Result
from nppr.types import Metric

__all__ = ["FORMS", "Numbers", "percent"]

FORMS: Mapping[str, Callable[[float], str]] = {
    "percent": lambda value: f"{100 * value:.1f}",
    "level": lambda value: f"{100 * value:g}",
    "count": lambda value: f"{value:,}",
    "loss": lambda value: f"{value:.3g}",
    "decimal": lambda value: f"{value:.3f}",
    "seconds": lambda value: f"{value:,.1f}",
    "tiny": lambda value: f"{value:.1e}",
    "plain": lambda value: f"{value:g}",
}
"""Ways to print a number: shares as percent, counts with commas, losses to three digits."""

LOSSES = (Metric.STRESS, Metric.NORMALISED_STRESS)
COUNTS = ("inputs", "draws", "calls")


def percent(value: float) -> str:
    """A share in percent, as everywhere on a page.

    >>> percent(0.12449)
    '12.4'
    """
    return FORMS["percent"](value)


class Numbers:
    """The numbers of one report, ready to print."""

    def __init__(self, report: Report) -> None:
        self.report = report
        tables = {"/results": report.results}
        tables |= {f"/radii/{i}/results": at.results for i, at in enumerate(report.radii)}
        self._places = {
            id(row): f"{table}/{i}" for table, rows in tables.items() for i, row in enumerate(rows)
        }

    def of(self, row: Result, field: str = "value") -> Markup:
        """A number of a result, without its unit; nothing where the result has none."""
        value = getattr(row, field)
        if value is None:
            return Markup("")
        if field == "confidence":
            form = "level"
        elif field in COUNTS:
            form = "count"
        else:
            form = "loss" if row.metric in LOSSES else "percent"
        facts = {
            "source": row.source,
            "metric": row.metric.value,
            "method": row.method or "",
            "claim": row.claim.value if row.claim else "",
            "field": field,
        }
        return _data(f"{self._places[id(row)]}/{field}", value, form, facts)

    def range(self, row: Result) -> Markup:
        """The interval of a result, without its unit."""
        ends = (self.of(row, "low"), self.of(row, "high"))
        return Markup('<span class="nowrap">{}-{}</span>').format(*ends)

    def quoted(self, row: Result) -> Markup:
        """A share with the interval to trust, as in a sentence."""
        return Markup(
            '<span class="nowrap">{}&nbsp;%</span> <span class="nowrap">({}&nbsp;%)</span>'
        ).format(self.of(row), self.range(interval_of(self.report, row)))

    def words(self, row: Result) -> str:
        """The same as plain text, for those who hear it."""
        used = interval_of(self.report, row)
        if row.value is None or used.low is None or used.high is None:
            return "no number"
        ends = f"{percent(used.low)} to {percent(used.high)} %"
        return f"{percent(row.value)} %, interval {ends}"

    def at(self, form: str, *keys: str | int) -> Markup:
        """The number at a place of the report, in one of `FORMS`."""
        value: Any = getattr(self.report, str(keys[0]))
        for key in keys[1:]:
            value = value[key]
        return _data(_pointer(keys), value, form, {})


def _pointer(keys: Sequence[str | int]) -> str:
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def _data(pointer: str, value: float, form: str, facts: Mapping[str, str]) -> Markup:
    said = Markup("").join(
        Markup(' data-{}="{}"').format(name, fact) for name, fact in facts.items()
    )
    return Markup('<data value="{}" data-pointer="{}" data-form="{}"{}>{}</data>').format(
        repr(value), pointer, form, said, FORMS[form](value)
    )
