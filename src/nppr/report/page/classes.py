"""Robustness by class: bars, the worst class first and by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from nppr.report.page.headline import headline_of, measured_source
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.per_input import PerInput
from nppr.report.schema import Report
from nppr.statistics.betting import betting
from nppr.types import Metric

__all__ = ["ClassBar", "by_class", "class_name", "classes_of"]

COLOURS = {Metric.NPPR: "nppr", Metric.PR: "pr", Metric.AR: "ar", Metric.BOUND: "bound"}

SHOWN = 20
"""Bars on the page; the other classes wait in a table that is folded away."""


@dataclass(frozen=True)
class ClassBar:
    """One class: its inputs that are right without noise, their mean share of right draws."""

    label: int
    name: str
    inputs: int
    rate: float
    low: float
    high: float


def by_class(report: Report, numbers: Numbers, per_input: PerInput | None) -> Markup:
    """The section's body."""
    row = headline_of(report).row
    source = measured_source(report, per_input, row) if per_input is not None and row else None
    bars = classes_of(report, per_input, source) if per_input is not None and source else []
    counted = {bar.label for bar in bars}
    return rendered(
        "classes.html.j2",
        n=numbers,
        held=per_input is not None,
        source=source,
        bars=bars,
        shown=bars[:SHOWN],
        rest=bars[SHOWN:],
        alike=len(bars) > 1 and bars[0].rate == bars[-1].rate,
        colour=COLOURS.get(row.metric, "other") if row else "other",
        missing=[c for c in range(int(report.data["classes"])) if c not in counted],
        name_of=lambda label: class_name(report, label),
        confidence=report.settings["confidence"],
    )


def classes_of(report: Report, per_input: PerInput, source: str) -> list[ClassBar]:
    """All classes with an input that is right without noise, the worst first.

    The intervals are guaranteed (betting), each for one class and about the population.
    """
    lines = per_input.of(source)
    right = lines["clean_correct"] == 1
    bars = []
    for label in np.unique(lines["label"][right]).tolist():
        rates = lines["rate"][right & (lines["label"] == label)].astype(np.float64)
        interval = betting(rates, report.settings["confidence"], report.seed)
        name = class_name(report, label)
        mean = float(rates.mean())
        bars.append(ClassBar(label, name, len(rates), mean, interval.low, interval.high))
    return sorted(bars, key=lambda bar: (bar.rate, bar.high, bar.label))


def class_name(report: Report, label: int) -> str:
    """The name of a class, or its number where the data have no names."""
    names = report.data.get("class_names") or []
    return str(names[label]) if 0 <= label < len(names) else str(label)
