"""How every number of a report is printed, and where in `report.json` it is.

On a page a number is a `<data>` element whose `data-pointer` is its place in the file (RFC 6901), so
that a test or a reader's script can compare all of them. Numbers of results also have `data-source`,
`data-metric`, `data-method`, `data-claim` and `data-field`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from markupsafe import Markup

from nppr.core.tally import Direction
from nppr.report.model import ReportRecord
from nppr.report.number import Number, StatedInterval


def rounded_out(value: float, decimals: int, *, up: bool) -> str:
    """An end of an interval, rounded away from what lies inside.

    >>> rounded_out(12.341, 1, up=True), rounded_out(12.349, 1, up=False), rounded_out(80.1, 2, up=True)
    ('12.4', '12.3', '80.10')
    """
    scale = 10**decimals
    whole = math.ceil(value * scale - 1e-9) if up else math.floor(value * scale + 1e-9)
    return f"{whole / scale:.{decimals}f}"


def _percent(value: float) -> str:
    """A share with one decimal; with more, where one would make it all or nothing."""
    ends = [end for end, inside in (("100", value < 1), ("0", value > 0)) if inside]
    texts = [f"{100 * value:.{decimals}f}" for decimals in (1, 2, 3, 4)]
    shown = (text for text in texts if text.rstrip("0").rstrip(".") not in ends)
    return next(shown, "99.9999" if value > 0.5 else "0.0001")


def _outwards(value: float, digits: int, *, up: bool) -> Decimal:
    """Round an end of an interval to a number of significant digits."""
    exact = Decimal(repr(value))
    unit = Decimal(1).scaleb(exact.adjusted() - digits + 1)
    return exact.quantize(unit, ROUND_CEILING if up else ROUND_FLOOR)


_FORMS: Mapping[str, Callable[[float], str]] = {
    "percent": _percent,
    "at-least": lambda value: rounded_out(100 * value, 1, up=False),
    "at-most": lambda value: rounded_out(100 * value, 1, up=True),
    "level": lambda value: f"{100 * value:g}",
    "count": lambda value: f"{value:,}",
    "loss": lambda value: f"{value:.3g}",
    "loss-at-least": lambda value: f"{float(_outwards(value, 3, up=False)):.3g}",
    "loss-at-most": lambda value: f"{float(_outwards(value, 3, up=True)):.3g}",
    "decimal": lambda value: f"{value:.3f}",
    "seconds": lambda value: f"{value:,.1f}",
    "tiny": lambda value: f"{value:.1e}",
    "tiny-at-most": lambda value: f"{float(_outwards(value, 2, up=True)):.1e}",
    "plain": lambda value: f"{value:g}",
}
"""Ways to print a number: fractions as percent, counts with commas, losses to three digits.

Ends of intervals are rounded outwards: what holds at least down, what holds at most up. Nothing looks
better, or surer, than it is. 100.0 % means all and 0.0 % none.
"""

_END_FORMS = {"low": "at-least", "high": "at-most"}
_FIELD_FORMS = {"confidence": "level", "inputs": "count", "draws": "count", "calls": "count"}


def percent(value: float, form: str = "percent") -> str:
    """A fraction in percent.

    >>> percent(0.12449), percent(0.9996, "at-least"), percent(0.12441, "at-most")
    ('12.4', '99.9', '12.5')
    >>> percent(0.99979), percent(1.0), percent(0.0002)
    ('99.98', '100.0', '0.02')
    """
    return _FORMS[form](value)


_CLAIMS = {
    Direction.UPPER_BOUND: "at most {high}{unit}{sure} ({value}{unit} observed)",
    Direction.LOWER_BOUND: "at least {value}{unit}{sure}",
    Direction.ESTIMATE: "{value}{unit} ({low}-{high}{unit}{sure})",
}
_CELLS = {
    Direction.UPPER_BOUND: "≤ {high} ({value} observed)",
    Direction.LOWER_BOUND: "≥ {value}",
    Direction.ESTIMATE: "{value} ({low}-{high})",
}
_WITHOUT_INTERVAL = {Direction.UPPER_BOUND: "{value}{unit} observed"}


def claim_text(
    direction: Direction | None,
    value: object,
    low: object,
    high: object,
    *,
    level: object = "",
    unit: str = " %",
    cell: bool = False,
    kind: type[str] = str,
) -> str:
    """Print what may be claimed of a number: the one form of terminal, page, files and comparisons.

    A search for bad noise may claim the upper end of its interval: it bounds the worst noise too, while
    the number itself was observed under the noise found. Numbers come as they are printed; a
    `cell` of a table has neither unit nor `level`, which its heading states. `kind` is Markup on pages.

    >>> claim_text(Direction.UPPER_BOUND, 49.6, 42.8, 56.4, level=95)
    'at most 56.4 % with 95 % confidence (49.6 % observed)'
    >>> claim_text(Direction.UPPER_BOUND, 49.6, 42.8, 56.4, cell=True)
    '≤ 56.4 (49.6 observed)'
    """
    unit = "" if cell else unit
    sure = kind(" with {} % confidence").format(level) if str(level) and not cell else kind("")
    forms = _CELLS if cell else _CLAIMS
    if high is None and direction is not Direction.LOWER_BOUND:
        forms = _WITHOUT_INTERVAL
    form = forms.get(direction or Direction.ESTIMATE, "{value}{unit}")
    if kind is not str:  # a number stays on the line of its unit
        form, unit, sure = (kind(each.replace(" %", "\u00a0%")) for each in (form, unit, sure))
    return kind(form).format(value=value, low=low, high=high, unit=unit, sure=sure)


@dataclass(frozen=True)
class PrintedNumber:
    """A number of the report as text, and on a page as an element with its place."""

    value: float
    form: str
    pointer: str
    facts: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return _FORMS[self.form](self.value)

    def __html__(self) -> str:
        facts = Markup("").join(
            Markup(' data-{}="{}"').format(name, fact) for name, fact in self.facts.items()
        )
        return Markup('<data value="{}" data-pointer="{}" data-form="{}"{}>{}</data>').format(
            repr(self.value), self.pointer, self.form, facts, str(self)
        )


class Numbers:
    """The numbers of one report, ready to print."""

    def __init__(self, report: ReportRecord) -> None:
        self.report = report
        tables = {"/numbers": report.numbers, "/other_radii": report.other_radii}
        self._places = {
            id(row): f"{table}/{i}" for table, rows in tables.items() for i, row in enumerate(rows)
        }

    def of(
        self, row: Number, field: str = "value", interval: StatedInterval | None = None
    ) -> PrintedNumber | str:
        """Print a field of a number, or an end of one of its intervals, without a unit.

        Empty if the number has none. By default the ends come from the number's usual interval.
        """
        used, end = interval or row.own, field in _END_FORMS
        value = getattr(used if end else row, field, None)
        if value is None:
            return ""
        facts = {
            "source": row.name,
            "metric": row.metric.value,
            "method": used.method if used else "",
            "claim": used.claim.value if used else "",
            "field": field,
        }
        bound = row.is_lower_bound and field == "value"
        form = "at-least" if bound else _END_FORMS.get(field, "")
        if row.metric.is_loss:
            form = f"loss-{form}" if form else "loss"
        form = _FIELD_FORMS.get(field, form or "percent")
        place = self.place(row, used if end else None)
        return PrintedNumber(value, form, f"{place}/{field}", facts)

    def place(self, row: Number, interval: StatedInterval | None = None) -> str:
        """Return where a number, or one of its intervals, is in the report."""
        place = self._places[id(row)]
        return place if interval is None else f"{place}/intervals/{row.intervals.index(interval)}"

    def at(self, form: str, *keys: str | int) -> PrintedNumber:
        """Print the number at a place of the report in one of the forms above."""
        value: Any = self.report
        for key in keys:
            keyed = isinstance(value, Mapping | Sequence)
            value = value[key] if keyed else getattr(value, str(key))
        place = "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
        return PrintedNumber(value, form, place)

    def range(self, row: Number, interval: StatedInterval | None = None) -> Markup:
        """Print an interval of a number, its own unless another is given, without a unit."""
        ends = (self.of(row, "low", interval), self.of(row, "high", interval))
        return Markup('<span class="nowrap">{}-{}</span>').format(*ends)

    def share(
        self, row: Number, field: str = "value", interval: StatedInterval | None = None
    ) -> Markup:
        """Print a fraction with its unit."""
        text = self.of(row, field, interval)
        return Markup('<span class="nowrap">{}&nbsp;%</span>').format(text)

    def claim(
        self,
        row: Number,
        interval: StatedInterval | None = None,
        *,
        sure: bool = True,
        cell: bool = False,
        kind: type[str] = Markup,
    ) -> str:
        """Print what may be claimed of a number; `sure` adds the confidence.

        The interval is the one to print unless another is given. A lower bound is the lower end.
        """
        if row.value is None:
            return kind("no number")
        used = interval or row.shown
        other = row.is_lower_bound and interval is not None and interval is not row.own
        return claim_text(
            row.direction,
            self.of(row, "low", interval) if other else self.of(row),
            self.of(row, "low", used),
            self.of(row, "high", used),
            level=self.of(row, "confidence") if sure else "",
            cell=cell,
            kind=kind,
            unit="" if row.metric.is_loss else " %",
        )
