"""The comparison: `compare.json` is the truth, everything else is rendered from it.

Fields: `docs/compare.md`. Entries are named by their position in `entries`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from nppr.report.reading import read_record
from nppr.types import Direction, Metric

__all__ = [
    "SCHEMA_VERSION",
    "Compared",
    "Comparison",
    "Difference",
    "Entry",
    "RunFacts",
    "Standing",
    "read_comparison",
]

SCHEMA_VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RunFacts(_Record):
    """One run of an entry."""

    folder: str
    seed: int
    grade: str


class Entry(_Record):
    """A classifier with its settings; several runs where they differ in the seed alone."""

    name: str
    classifier: str
    data: str
    budget: str
    runs: tuple[RunFacts, ...]
    differs: dict[str, str]


class Standing(_Record):
    """The number of one entry; `std` is over seeds, `error` says why there is no number."""

    entry: int
    value: float | None
    low: float | None
    high: float | None
    confidence: float
    method: str | None
    direction: Direction | None
    std: float | None
    normalised: float | None
    normalised_std: float | None
    inputs: int
    draws: int
    rank: int | None = None
    flags: tuple[str, ...] = ()
    error: str | None = None


class Difference(_Record):
    """The value of `first` minus that of `second`, in shares.

    `separated`: 0 lies outside the interval at the confidence of all pairs together.
    """

    first: int
    second: int
    value: float
    low: float
    high: float
    confidence: float
    method: str
    paired: bool
    guaranteed_low: float | None
    guaranteed_high: float | None
    unpaired_low: float
    unpaired_high: float
    separated: bool
    flags: tuple[str, ...] = ()


class Compared(_Record):
    """One metric of one source over all entries."""

    metric: Metric
    source: str
    standings: tuple[Standing, ...]
    differences: tuple[Difference, ...]


class Comparison(_Record):
    """Several runs side by side."""

    schema_version: int
    nppr_version: str
    confidence: float
    seed: int
    resamples: int
    paired: bool
    entries: tuple[Entry, ...]
    results: tuple[Compared, ...]
    notes: tuple[str, ...]

    def of(self, source: str, metric: Metric) -> Compared | None:
        """The comparison of a metric and source."""
        for result in self.results:
            if (result.source, result.metric) == (source, metric):
                return result
        return None

    def to_json(self) -> str:
        """The text of `compare.json`."""
        return self.model_dump_json(indent=2) + "\n"


def read_comparison(path: str | Path) -> Comparison:
    """Read a `compare.json`; what is not one gives one clear line."""
    return read_record(path, Comparison, SCHEMA_VERSION, "comparison", "compare.json")
