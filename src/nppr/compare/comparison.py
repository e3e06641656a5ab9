"""The comparison: `compare.json` is the truth, everything else is rendered from it.

Fields: `docs/compare.md`. Entries are named by their position in `entries`.
"""

from __future__ import annotations

from pathlib import Path

from nppr.report.run_files import read_model
from nppr.search.search_record import Record
from nppr.tally import Direction, Metric

SCHEMA_VERSION = 2


class RunEntry(Record):
    """One run of an entry."""

    folder: str
    seed: int
    grade: str


class Entry(Record):
    """A classifier with its settings; several runs where they differ in the seed alone."""

    name: str
    classifier: str
    data: str
    budget: str
    runs: tuple[RunEntry, ...]
    differs: dict[str, str]


class Standing(Record):
    """The number of one entry; `std` is over seeds, `error` states why there is no number."""

    entry: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: str | None = None
    direction: Direction | None = None
    std: float | None = None
    normalised: float | None = None
    normalised_std: float | None = None
    normalised_low: float | None = None
    normalised_high: float | None = None
    inputs: int
    draws: int
    rank: int | None = None
    flags: tuple[str, ...] = ()
    error: str | None = None


class Difference(Record):
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


class Compared(Record):
    """One metric of one row over all entries.

    `incomparable` is the sentence on why there are neither differences nor ranks, where the numbers
    are upper bounds of searches with different settings; else empty.
    """

    metric: Metric
    source: str
    incomparable: str = ""
    standings: tuple[Standing, ...]
    differences: tuple[Difference, ...]


class Comparison(Record):
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
    return read_model(path, Comparison, SCHEMA_VERSION, "comparison")
