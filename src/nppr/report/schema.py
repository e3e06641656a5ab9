"""The report: JSON is the truth, everything else is rendered from it. Fields: `docs/report.md`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr

from nppr.errors import RunFolderError
from nppr.report.evidence import Evidence
from nppr.report.per_input import PerInput
from nppr.report.reading import read_record
from nppr.types import Claim, Direction, Estimate, Evaluate, Metric

__all__ = [
    "SCHEMA_VERSION",
    "WITH_REFERENCES",
    "AtRadius",
    "Flag",
    "Report",
    "Result",
    "failed",
    "read_report",
    "result",
]

SCHEMA_VERSION = 1

WITH_REFERENCES = " or noise"
"""Behind the name of a learned source: the worse of it and the reference noises."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Result(_Record):
    """One number of one source, with everything needed to quote it.

    A source that failed has one result without a value, and `error` says why.
    """

    source: str
    metric: Metric
    value: float | None
    low: float | None
    high: float | None
    confidence: float
    method: str | None
    claim: Claim | None
    direction: Direction | None
    split: str
    inputs: int
    draws: int
    calls: int
    flags: tuple[str, ...] = ()
    error: str | None = None
    gamma: float | None = None


class AtRadius(_Record):
    """The results of all sources at another radius than that of the run."""

    radius: float
    text: str
    results: tuple[Result, ...]


class Flag(_Record):
    """A documented warning about the run or one of its sources."""

    id: str
    source: str | None
    message: str


class Report(_Record):
    """Everything one assessment found, and how."""

    schema_version: int
    nppr_version: str
    classifier: dict[str, Any]
    data: dict[str, Any]
    budget: dict[str, Any]
    seed: int
    settings: dict[str, Any]
    results: tuple[Result, ...]
    distributions: tuple[dict[str, Any], ...]
    flags: tuple[Flag, ...]
    grade: dict[str, str]
    timing: dict[str, Any]
    environment: dict[str, Any]
    rare: tuple[dict[str, Any], ...] = ()
    precision: dict[str, Any] | None = None
    radii: tuple[AtRadius, ...] = ()
    _per_input: PerInput | None = PrivateAttr(None)
    _evidence: Evidence | None = PrivateAttr(None)

    def headline(self, source: str, metric: Metric) -> Result | None:
        """The first result of this source and metric: the one a table shows."""
        for candidate in self.results:
            if candidate.source == source and candidate.metric is metric:
                return candidate
        return None

    def to_json(self) -> str:
        """The text of `report.json`."""
        return self.model_dump_json(indent=2) + "\n"

    def table(self, width: int = 110) -> str:
        """The results as plain text."""
        from nppr.report.tables import as_text  # rendering stands on the schema

        return as_text(self, width)

    @property
    def per_input(self) -> PerInput:
        """One line an input and source; a report that was read alone has none."""
        if self._per_input is None:
            raise RunFolderError(
                "`per_input` must come with the report, this one was read without its folder."
                " Read it with nppr.read_run(FOLDER).report"
            )
        return self._per_input

    def with_inputs(self, per_input: PerInput | None, evidence: Evidence | None) -> Report:
        """The same report with what stands beside it in a run folder."""
        report = self.model_copy()
        report._per_input, report._evidence = per_input, evidence
        return report

    def to_html(self) -> str:
        """The page for readers: one HTML file that needs no network."""
        from nppr.report.page import page_of

        return page_of(self, self._per_input, self._evidence)

    def _repr_html_(self) -> str:
        from nppr.report.page import fragment_of

        return fragment_of(self)


def result(source: str, estimate: Estimate) -> Result:
    """An estimate as a row of the report."""
    return Result(
        source=source,
        metric=estimate.metric,
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        confidence=estimate.confidence,
        method=estimate.method,
        claim=estimate.claim,
        direction=estimate.direction,
        split=estimate.split,
        inputs=estimate.inputs,
        draws=estimate.draws,
        calls=estimate.calls,
        flags=estimate.flags,
        gamma=estimate.gamma,
    )


def failed(
    source: str, metric: Metric, confidence: float, error: str, flags: tuple[str, ...] = ()
) -> Result:
    """The row of a source that could not be measured."""
    return Result(
        source=source,
        metric=metric,
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method=None,
        claim=None,
        direction=None,
        split=Evaluate.name,
        inputs=0,
        draws=0,
        calls=0,
        flags=flags,
        error=error,
    )


def read_report(path: str | Path) -> Report:
    """Read a `report.json`; a newer schema, a truncated or an edited file gives one clear line."""
    return read_record(path, Report, SCHEMA_VERSION, "report", "report.json")
