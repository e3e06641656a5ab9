"""The comparison: `compare.json` is the truth, everything else is rendered from it.

Fields: `docs/compare.md`. Entries are named by their position in `entries`.
"""

from __future__ import annotations

from pathlib import Path

from nppr.core.tally import Direction, Metric
from nppr.report.run_files import read_model
from nppr.search.search_record import Record

SCHEMA_VERSION = 3
SIGN_TEST, BETTING = "sign-test", "betting"


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
    """The number of one entry; `std` is over seeds, `error` states why the number is missing."""

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
    """The numbers of `first` minus those of `second`, on the inputs that count for both.

    For accuracy these are all inputs, else those that both classify correctly without noise. `value` is
    the mean difference, as a fraction. The p-values are two-sided; the adjusted one accounts for all
    differences in robustness together (or all in accuracy), and it decides `separated`.
    """

    first: int
    second: int
    inputs: int
    value: float
    confidence: float
    guaranteed_low: float
    guaranteed_high: float
    approximate_low: float
    approximate_high: float
    first_better: int
    second_better: int
    method: str
    p_value: float
    adjusted_p_value: float
    separated: bool

    @property
    def better(self) -> int:
        """The entry with the higher mean."""
        return self.first if self.value > 0 else self.second


class Compared(Record):
    """One metric of one row over all entries.

    `incomparable` states why there are neither differences nor ranks, if the numbers are upper bounds
    of searches with different settings; else it is empty.
    """

    metric: Metric
    source: str
    incomparable: str = ""
    standings: tuple[Standing, ...]
    differences: tuple[Difference, ...]


class Comparison(Record):
    """Several runs side by side: the answer first, settings and hashes last."""

    schema_version: int
    nppr_version: str
    answer: str
    notes: tuple[str, ...]
    confidence: float
    seed: int
    paired: bool
    results: tuple[Compared, ...]
    entries: tuple[Entry, ...]

    def of(self, source: str, metric: Metric) -> Compared | None:
        """The comparison of a metric and source."""
        return next(
            (each for each in self.results if (each.source, each.metric) == (source, metric)), None
        )

    def to_json(self) -> str:
        """The text of `compare.json`."""
        return self.model_dump_json(indent=2) + "\n"


def read_comparison(path: str | Path) -> Comparison:
    """Read a `compare.json`; what is not one gives one clear line."""
    return read_model(path, Comparison, SCHEMA_VERSION, "comparison")
