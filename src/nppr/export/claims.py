"""The numbers of a report as claims to file: evidence, or findings if flags make them unreliable.

A flag can make a favourable number unreliable. It never removes an unfavourable number that is valid:
a number that may be too high stays an upper bound, with a remark that the truth may be lower still.

A claim names its place in report.json (RFC 6901) and the SHA-256 of the entry there. An assessor can
look the entry up and check that it is unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nppr.core.tally import Claim, Direction, Metric
from nppr.errors import RunFolderError
from nppr.report.findings import table_rows
from nppr.report.gate_record import SCHEMA_VERSION as GATE_VERSION
from nppr.report.gate_record import GateRecord
from nppr.report.model import Flag, ReportRecord, SliceResult
from nppr.report.number import Number, StatedInterval
from nppr.report.printed_numbers import Numbers, claim_text, percent
from nppr.report.quotes import noise_of, sentence_of
from nppr.report.run_files import read_model, read_report

LIMITING = {
    "warning": (Direction.ESTIMATE, Direction.LOWER_BOUND),
    "serious": tuple(Direction),
}
"""Severities that can keep numbers from being evidence, with the directions they limit. The directions
are for flags of earlier versions, which do not state them. A warning never limits an upper bound.
"""

WEAK_ATTACK = ("gradient-masking", "attack-too-weak")
"""Flags that name the source which exposed a weak attack. They concern AR, not that source."""


class FiledGate(NamedTuple):
    """The record of a gate on the same classifier, with the SHA-256 of its file."""

    record: GateRecord
    sha256: str
    file: str


class FiledReport(NamedTuple):
    """A report with the SHA-256 of its file and the JSON content of that file.

    `gate` is the record of `nppr gate` on the same classifier, if there is one.
    """

    report: ReportRecord
    sha256: str
    content: Any
    gate: FiledGate | None = None

    @property
    def date(self) -> str:
        """The UTC date of the run."""
        return self.report.environment.date or "unknown"

    def hash_at(self, pointer: str) -> str:
        """Return the SHA-256 of an entry as JSON with sorted keys and no spaces."""
        entry = self.content
        for key in pointer.strip("/").split("/"):
            entry = entry[int(key)] if isinstance(entry, list) else entry[key]
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def read_filed(path: Path, gate: Path | None = None) -> FiledReport:
    """Read a `report.json` with its hash, and the JSON of a gate on the same classifier."""
    report, content = read_report(path), path.read_bytes()
    filed = FiledReport(report, hashlib.sha256(content).hexdigest(), json.loads(content))
    return filed if gate is None else filed._replace(gate=_read_gate(gate, report))


def _read_gate(path: Path, report: ReportRecord) -> FiledGate:
    record = read_model(path, GateRecord, GATE_VERSION, "gate")
    for name, same in (
        ("classifier", record.classifier.fingerprint == report.classifier.fingerprint),
        ("budget", str(record.budget) == str(report.budget)),
    ):
        if not same:
            raise RunFolderError(
                f"`gate` must be about the {name} of the run, {path} is about another one."
                " Example: nppr gate POLICY --json > gate.json"
            )
    return FiledGate(record, hashlib.sha256(path.read_bytes()).hexdigest(), path.name)


@dataclass(frozen=True)
class NumberClaim:
    """One number with its interval and scope.

    `because` lists the flags that make it a finding, `remarks` the flags for which it may be lower
    still. `low` is None for an upper bound and `high` for a lower bound, because that end of the
    interval does not apply to the worst noise.
    """

    pointer: str
    interval_pointer: str
    sha256: str
    interval_sha256: str
    metric: Metric
    source: str
    set: str
    """The perturbations and the budget that it applies to."""
    slice: str
    value: float
    low: float | None
    high: float | None
    confidence: float
    direction: Direction
    claim: Claim
    method: str
    inputs: int
    draws: int
    sentence: str
    because: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """The numbers and their scope as plain values."""
        left_out = ("sentence", "because", "remarks")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    @property
    def text(self) -> str:
        """The sentence, with the consequences of its flags."""
        if self.because:
            return f"Not evidence ({', '.join(self.because)}): {self.sentence}"
        if self.remarks:
            return f"{self.sentence} The truth may be lower still ({', '.join(self.remarks)})."
        return self.sentence

    @property
    def is_evidence(self) -> bool:
        """Whether no flag makes the number unreliable."""
        return not self.because


def claims_of(filed: FiledReport) -> list[NumberClaim]:
    """Return the numbers of the table and of all slices, in their order."""
    numbers, found = Numbers(filed.report), []
    for row in table_rows(filed.report):
        # For a bound, the population comes first; the table shows this test set.
        both = (row.population, row.own) if row.is_lower_bound else (row.shown,)
        found += [_claim_number(filed, numbers, row, used) for used in both if used is not None]
    return [*found, *(_claim_slice(filed, at) for at in range(len(filed.report.slices)))]


def missing_of(report: ReportRecord) -> list[str]:
    """Return the numbers that were requested and are missing, each with the reason."""
    failed = [row for row in report.numbers if row.value is None]
    return [f"{row.metric} of {row.name}: {row.error or 'not measured'}" for row in failed]


def doubting_flags(
    flags: Sequence[Flag],
    names: tuple[str | None, ...],
    metric: Metric | None,
    direction: Direction,
    unknown: str = "note",
) -> list[Flag]:
    """Return the flags for which a number may be too high or may not mean what it states.

    A serious flag on the run concerns all numbers. A warning on the run concerns numbers that a search
    found, and numbers of a direction that it limits. A flag on a source concerns the numbers of that
    source, but flags that expose a weak attack concern AR. Flags of an earlier version have no severity
    and get that of `unknown`.
    """

    def doubts(flag: Flag) -> bool:
        severity = flag.severity or unknown
        if severity not in LIMITING:
            return False
        if flag.id in WEAK_ATTACK:
            return metric is Metric.AR
        if flag.source is not None:
            return flag.source in names
        searched = direction is Direction.UPPER_BOUND
        return severity == "serious" or searched or direction in (flag.limits or ())

    return [flag for flag in flags if doubts(flag)]


def _split_flags(
    report: ReportRecord, names: tuple[str | None, ...], metric: Metric, direction: Direction
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the flags that keep a number from being evidence, and those that are remarks on it."""
    unknown = "warning" if report.grade.letter in "CD" else "note"
    doubting = doubting_flags(report.flags, names, metric, direction, unknown)

    def limits(flag: Flag) -> tuple[Direction, ...]:
        return LIMITING[flag.severity or unknown] if flag.limits is None else flag.limits

    because = tuple(dict.fromkeys(flag.id for flag in doubting if direction in limits(flag)))
    if direction is not Direction.UPPER_BOUND:  # a lower bound holds whatever a search did
        return because, ()
    return because, tuple(dict.fromkeys(each.id for each in doubting if each.id not in because))


def _claim_number(
    filed: FiledReport, numbers: Numbers, row: Number, used: StatedInterval
) -> NumberClaim:
    report, direction = filed.report, row.direction or Direction.ESTIMATE
    assert row.value is not None
    interval_pointer = numbers.place(row, used)
    # The value of a bound for the population is in its interval.
    apart = row.is_lower_bound and used is not row.own
    pointer = interval_pointer if apart else numbers.place(row)
    reference = row.bound.reference if row.bound else None
    names = (row.name, row.subject.noise, row.source, row.tally, reference)
    because, remarks = _split_flags(report, names, row.metric, direction)
    over_correct = row.metric.is_of_clean_correct or row.is_lower_bound
    return NumberClaim(
        pointer=pointer,
        interval_pointer=interval_pointer,
        sha256=filed.hash_at(pointer),
        interval_sha256=filed.hash_at(interval_pointer),
        metric=row.metric,
        source=row.name,
        set=_set_words(report, row),
        slice="clean-correct inputs" if over_correct else "all inputs",
        value=used.low if row.is_lower_bound else row.value,
        low=None if row.is_upper_bound else used.low,
        high=None if row.is_lower_bound else used.high,
        confidence=row.confidence,
        direction=direction,
        claim=used.claim,
        method=used.method,
        inputs=row.inputs,
        draws=row.draws,
        sentence=sentence_of(numbers, row, used),
        because=because,
        remarks=remarks,
    )


def _claim_slice(filed: FiledReport, at: int) -> NumberClaim:
    report = filed.report
    row, pointer = report.slices[at], f"/slices/{at}"
    whole = report.headline(row.source, row.metric)
    because, remarks = _split_flags(report, (row.source, row.tally), row.metric, row.direction)
    return NumberClaim(
        pointer=pointer,
        interval_pointer=pointer,
        sha256=filed.hash_at(pointer),
        interval_sha256=filed.hash_at(pointer),
        metric=row.metric,
        source=row.source,
        set=_set_words(report, whole) if whole else f"{row.source}; budget {report.budget}",
        slice=f"{row.column} {row.name}, clean-correct inputs",
        value=row.value,
        low=None if row.direction is Direction.UPPER_BOUND else row.low,
        high=row.high,
        confidence=row.confidence,
        direction=row.direction,
        claim=row.claim,
        method=f"{row.method}, all of {row.column} together",
        inputs=row.inputs,
        draws=row.draws,
        sentence=slice_sentence(report, row),
        because=because,
        remarks=remarks,
    )


def _set_words(report: ReportRecord, row: Number) -> str:
    """Return the perturbations of a number and its budget; accuracy and corruptions have none."""
    if row.metric is Metric.ACCURACY:
        return "none: the inputs as they are"
    budget = "no budget" if row.radius is None else f"budget {report.budget}"
    return f"{noise_of(report, row)}; {budget}"


def slice_claim(row: SliceResult) -> str:
    """Return what may be claimed of a slice."""
    ends = percent(row.low, "at-least"), percent(row.high, "at-most")
    said = claim_text(row.direction, percent(row.value), *ends)
    return (
        f"{said} with {100 * row.confidence:g} % confidence for all slices of {row.column} together"
    )


def slice_sentence(report: ReportRecord, row: SliceResult) -> str:
    """Return the sentence on a slice, with its scope."""
    budget = "" if row.metric in (Metric.ACCURACY, Metric.CORRUPTION) else f", {report.budget}"
    return (
        f"On {row.column} {row.name}, the {row.metric} of {row.source} is {slice_claim(row)}:"
        f" {report.classifier.name} on {report.data.name}{budget}; {row.inputs:,} clean-correct inputs,"
        f" {row.draws:,} draw{'' if row.draws == 1 else 's'} each; {row.claim}."
    )
