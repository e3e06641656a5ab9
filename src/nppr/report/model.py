"""The report as typed records. `report.json` is authoritative; everything else is rendered from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from nppr.core.tally import Audit, Claim, Direction, Metric
from nppr.noise.admissible_set import AdmissibleSet
from nppr.noise.rungs import Dependency
from nppr.noise.structures import ANY
from nppr.report.number import Confidence, Number, Share
from nppr.search.search_record import (
    BudgetRecord,
    ClassifierRecord,
    DistributionRecord,
    Record,
    SearchCurve,
)
from nppr.search.search_settings import SearchSettings
from nppr.settings import Measure
from nppr.statistics.estimates import Allowance
from nppr.statistics.frame_statistics import FrameStatistics

SCHEMA_VERSION = 3


class SplitSizes(Record):
    """Inputs of each split."""

    fit: int
    select: int
    evaluate: int


class LayoutRecord(Record):
    """The shape of an input as the model takes it, and its range: one, or one per feature."""

    shape: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


class DataRecord(Record):
    """The data and what identifies them."""

    name: str
    classes: int
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    split: str | None
    resize: int | None
    inputs: SplitSizes
    fingerprint: str
    notes: tuple[str, ...] = ()
    """Conversions that were made as the data were loaded."""
    layout: LayoutRecord | None = None
    """None for images in [0, 1]."""
    task: str | None = None
    """A correct answer in words; None for the label."""
    task_fingerprint: str | None = None
    """A hash of what the task judges to be correct among fixed outputs."""
    task_kind: str | None = None
    """Such as `regression`; None for the label, and for a task that does not state it."""

    def class_name(self, label: int) -> str:
        """The name of a class, or its number if the data have no names."""
        return self.class_names[label] if 0 <= label < len(self.class_names) else str(label)

    @property
    def kind(self) -> str:
        """Kind of an input: an image, a signal, a table or any other tensor."""
        rank = 3 if self.layout is None else len(self.layout.shape)
        return {0: "table", 1: "table", 2: "signal", 3: "image"}.get(rank, "tensor")

    @property
    def inputs_are(self) -> str:
        """The inputs for readers: `images of 1 x 8 x 8`."""
        shape = self.shape if self.layout is None else self.layout.shape
        plural = {"table": "rows of a table"}.get(self.kind, f"{self.kind}s")
        text = f"{plural} of {' x '.join(map(str, shape))}"
        if self.layout is None:
            return text
        low, high = self.layout.low, self.layout.high
        each = f"[{low[0]:g}, {high[0]:g}]" if len(low) == len(high) == 1 else "its own per feature"
        return f"{text}, range {each}"


class SourceRecord(Record):
    """A source that was asked for, with all its options."""

    name: str
    kind: str
    metric: Metric
    options: dict[str, bool | int | float | str]
    fixed: bool = False
    """Noise that sees neither input nor classifier."""
    reference: bool = False
    """Noise that learned noise is compared with: all values are independent and have the same law."""
    fitted: bool = False
    """It was fitted on the fit split before it was measured."""


class SettingsRecord(Record):
    """The settings of a run, beside classifier, data and budget."""

    sources: tuple[SourceRecord, ...] = ()
    search: SearchSettings | None = None
    distributions: dict[str, str] = {}
    """Checksums of learned noise that was given, by name."""
    measure: Measure


class SliceResult(Record):
    """The number of one source on the clean-correct inputs of one slice.

    The intervals of all slices of a column hold together at the confidence (Bonferroni).
    """

    column: str
    """`class`, or a column of the file of slices."""
    name: str
    source: str
    """The name of the number that this is a part of; `tally` its lines in `per_input.csv`."""
    tally: str
    metric: Metric
    direction: Direction
    value: Share
    low: Share
    high: Share
    confidence: Confidence
    method: str
    claim: Claim
    inputs: int
    draws: int


class Flag(Record):
    """A documented warning about the run or one of its sources."""

    id: str
    source: str | None
    message: str
    severity: str | None = None
    """`information`, `note`, `warning` or `serious`; None in reports of earlier versions."""
    limits: tuple[Direction, ...] | None = None
    """Directions of numbers that cannot be relied on because of it; None in earlier reports."""


class Grade(Record):
    """A letter from A to D and the flags that decided."""

    letter: str
    reason: str


class RareRecord(Record):
    """What splitting found for one source among inputs without a failure.

    With the confidence of the run, the failure probability of an input that was followed is at most
    `limit`, from its `independent_draws` alone; None in earlier reports. The rest is an indication.
    """

    source: str
    unbroken: int
    followed: int
    found: int
    below: int
    out_of_calls: int
    particles: int
    replicates: int
    calls: int
    largest: float
    median: float
    added: float
    independent_draws: int | None = None
    limit: float | None = None


class Width(Record):
    """How far a source's interval reaches from its value, and the two variances behind it."""

    half_width: float
    """Half width of the narrowest interval around the value that contains its `betting-sequence`."""
    between: float
    within: float


class PrecisionRecord(Record):
    """The rounds, `(inputs, draws)` each, of a run that measures until its intervals are narrow."""

    asked: float
    reached: bool
    rounds: tuple[tuple[int, int], ...]
    available_inputs: int
    needed_inputs: int | None
    widths: dict[str, Width]


class Rung(Record):
    """One cell of the ladder at one floor, and how well its worst noise was searched for.

    `curve` has values on the select split. For `per-input` they are values on the first `select_inputs`
    evaluated inputs: its rounds are half and all of the calls, its restarts the search and one with
    another seed, and it is flat unless the second half gained more than 5 percentage points.
    """

    name: str
    dependency: Dependency
    floor: float
    value: float
    calls: int
    """Classifier calls that led to it; of `per-input`, calls of each input."""
    structure: str = ANY
    """The structure of its noise."""
    curve: SearchCurve | None = None
    """None for a search that was not judged, and for noise that was given."""
    seeds: tuple[float, ...] = ()
    """Values of whole searches with other seeds, the one quoted first."""
    fit: float | None = None
    """PR on the fit split in the last steps."""
    select_inputs: int = 0
    strongest: str | None = None
    """The lowest source of the same set that was not searched for here, and its value."""
    strongest_value: float | None = None
    smaller_radius: float | None = None
    """The value of the same pattern at (1 - rho) r, without the Uniform part."""

    @property
    def admissible(self) -> AdmissibleSet:
        """The set that was searched."""
        return AdmissibleSet(self.dependency, self.structure, self.floor)

    @property
    def restarts_are_tries(self) -> bool:
        """Whether the restarts only chose where further rounds went."""
        return self.dependency.is_fitted and len(self.seeds) < 2

    @property
    def spread(self) -> float | None:
        """Largest difference between searches that differ in their random numbers only."""
        restarts = self.curve.restarts if self.curve else ()
        known = self.seeds if len(self.seeds) > 1 else restarts
        return max(known) - min(known) if len(known) > 1 else None


class Timing(Record):
    """Seconds by measurement, and the speed of a forward pass."""

    seconds: dict[str, float]
    total_seconds: float
    images_per_second: float


class Environment(Record):
    """Where and when it ran."""

    date: str | None = None
    """The UTC date on which the run ended, such as 2026-01-31; None in earlier reports."""
    python: str
    torch: str
    numpy: str
    platform: str
    device: str
    threads: int
    micro_batch: int
    form: tuple[str, ...]
    engine: str | None = None
    """What computed forward passes without gradients; None in reports that do not state it."""
    rough_gradients: bool | None = None
    """Whether fits followed gradients in 16-bit floats; None without fits."""


class AuditRecord(Record):
    """How the decisions that 16-bit floats took alone for one source were checked by the model."""

    source: str
    share: float
    """Probability with which a decision was repeated."""
    alone: int
    audited: int
    discarded: bool
    """The model contradicted one of them, so the source was measured exactly."""
    widened_by: float
    """How much the audit adds at each end of the intervals of the mean."""


class ReportRecord(Record):
    """Everything one assessment found, and how. `Report` adds what renders it."""

    schema_version: int
    nppr_version: str
    classifier: ClassifierRecord
    data: DataRecord
    budget: BudgetRecord
    seed: Annotated[int, Field(ge=0)]
    settings: SettingsRecord
    numbers: tuple[Number, ...]
    """At the radius of the budget."""
    other_radii: tuple[Number, ...] = ()
    """The sources again at other radii, each at its `Number.radius`."""
    distributions: tuple[DistributionRecord, ...] = ()
    ladder: tuple[Rung, ...] = ()
    slices: tuple[SliceResult, ...] = ()
    """The number that the run is quoted for, by class and by each column beside the data."""
    flags: tuple[Flag, ...] = ()
    grade: Grade
    rare: tuple[RareRecord, ...] = ()
    precision: PrecisionRecord | None = None
    audits: tuple[AuditRecord, ...] = ()
    noise_samples: FrameStatistics | None = None
    """The noise in frames that were given; None without any."""
    timing: Timing
    environment: Environment

    def headline(self, name: str, metric: Metric) -> Number | None:
        """The first number of this name and metric: the one that a table shows."""
        return next((n for n in self.numbers if n.name == name and n.metric is metric), None)

    def allowance(self, tally: str) -> Allowance:
        """What intervals of the draws of a source must allow for (`nppr.statistics.estimates`)."""
        found = next((each for each in self.audits if each.source == tally), None)
        if found is None:
            return Allowance(self.settings.measure.confidence)
        audit = Audit(found.share, found.alone, found.audited, found.discarded)
        return Allowance.of(
            audit, self.settings.measure.confidence, self.settings.measure.draws or 1
        )

    def distribution(self, name: str) -> DistributionRecord | None:
        """The learned noise of this name."""
        return next((each for each in self.distributions if each.name == name), None)

    def at_other_radii(self) -> Iterator[tuple[float, list[Number]]]:
        """The numbers at each other radius, smallest radius first."""
        radii = sorted({row.radius for row in self.other_radii if row.radius is not None})
        for radius in radii:
            yield radius, [row for row in self.other_radii if row.radius == radius]

    def to_json(self) -> str:
        """The text of `report.json`."""
        return self.model_dump_json(indent=2) + "\n"
