"""What figures are drawn of: a report and what its run folder holds beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nppr.noise import Dependency
from nppr.report.evidence import Draws, Evidence
from nppr.report.figures.style import named
from nppr.report.per_input import PerInput
from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.types import Metric

__all__ = ["ROBUSTNESS", "Subject", "headlines", "interval", "percent"]

ROBUSTNESS = (Metric.NPPR, Metric.AR, Metric.PR)


@dataclass(frozen=True, eq=False)
class Subject:
    """A run; `per_input` and `evidence` are None where its folder holds none."""

    report: Report
    per_input: PerInput | None
    evidence: Evidence | None

    @property
    def draws(self) -> tuple[Draws, ...]:
        """The draws of learned sources that can be shown."""
        found = self.evidence.draws if self.evidence else ()
        return tuple(each for each in found if each.many.numel())

    @property
    def learned(self) -> list[dict[str, Any]]:
        """The entries of learned sources, one for each floor."""
        return [each for each in self.report.distributions if "fit-seed" not in each["source"]]

    def dependency(self, source: str) -> Dependency | None:
        """What the noise of a learned source sees."""
        for each in self.report.distributions:
            if each["source"] == source:
                return Dependency(each["family"]["dependency"])
        return None

    def class_name(self, label: int) -> str:
        """The name of a class, short enough to stand in a figure."""
        names = self.report.data.get("class_names") or []
        return named(names[label]) if 0 <= label < len(names) else str(label)


def headlines(results: Iterable[Result]) -> dict[str, Result]:
    """The first row of PR, AR or NPPR of every source that has a value, by source."""
    found: dict[str, Result] = {}
    for row in results:
        shown = row.metric in ROBUSTNESS and not row.source.endswith(WITH_REFERENCES)
        if shown and row.value is not None:
            found.setdefault(row.source, row)
    return found


def percent(value: float) -> str:
    """A share as text.

    >>> percent(0.1234)
    '12.3 %'
    """
    return f"{100 * value:.1f} %"


def interval(row: Result) -> str:
    """A value with its interval as text."""
    assert row.value is not None
    if row.low is None or row.high is None:
        return percent(row.value)
    return f"{percent(row.value)} ({100 * row.low:.1f}-{percent(row.high)})"
