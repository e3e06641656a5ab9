"""A Markdown section of technical documentation: every number beside the methods that it belongs to.

Clauses are named by their subjects. If you need the number of a clause, look it up in the edition that
applies to you.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nppr.core.tally import Direction, Metric
from nppr.export.claims import FiledReport, NumberClaim, claims_of, missing_of, slice_claim
from nppr.export.documents import Document
from nppr.report.findings import worst_slices
from nppr.report.model import ReportRecord
from nppr.report.printed_numbers import percent
from nppr.report.results_table import describe_subject
from nppr.report.tables import Cell, Column, Table, md_text

_STATISTICAL = "ISO/IEC TR 24029-1, statistical methods"
_BOUND = f"{_STATISTICAL}; not a formal proof as in ISO/IEC 24029-2: it holds at a confidence"
_STANDARDS = (
    "All numbers are results of statistical methods in the sense of ISO/IEC TR 24029-1: they were"
    " measured on a data set. None is a formal proof (ISO/IEC 24029-2) or a result of field trials, a"
    " posteriori testing or benchmarking (empirical methods). ISO/IEC 24029-3 on statistical methods"
    " is a draft."
)
_Made = Callable[[ReportRecord, NumberClaim], Cell]
_SCOPE = (
    "This section reports robustness to perturbations of the input for the technical documentation of"
    " Annex IV of Regulation (EU) 2024/1689 (validation and testing procedures, metrics used to measure"
    " accuracy and robustness) and for Article 15 (accuracy, robustness and cybersecurity). It states"
    " measurements. The provider decides whether they suffice."
)
_READING = (
    "Fractions in %. Each row holds at its own confidence; the rows do not hold together. An upper"
    " bound comes from a search: at the stated confidence the worst case is at most its upper end, and"
    " may be much lower. It is a limit of robustness and does not support a claim of robustness."
)


def technical_documentation(filed: FiledReport) -> str:
    """Return the section."""
    report, claims = filed.report, claims_of(filed)
    evidence = [each for each in claims if each.is_evidence]
    findings = [each for each in claims if not each.is_evidence]
    parts = [
        "## Accuracy and robustness",
        _SCOPE,
        "### What was tested",
        _bullets(_list_subject(filed)),
        "### Evidence",
        _STANDARDS,
        _READING,
        _table(report, evidence)
        if evidence
        else "None: flags make all numbers of this run unreliable.",
        "### Findings",
        "Numbers that flags make unreliable, numbers that were not measured, and all flags of the run.",
        *([_table(report, findings)] if findings else []),
        _bullets([*(f"not measured: {each}" for each in missing_of(report)), *_flags(report)])
        or "None.",
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _list_subject(filed: FiledReport) -> list[str]:
    report = filed.report
    classifier, worst = report.classifier, worst_slices(report)
    return [
        describe_subject(report),
        f"measured on {filed.date} (UTC)",
        f"weights file SHA-256: {classifier.weights_sha256 or 'none'}",
        f"classifier fingerprint: {classifier.fingerprint}",
        f"data fingerprint: {report.data.fingerprint}",
        f"report.json SHA-256: {filed.sha256}, nppr {report.nppr_version}",
        f"grade {report.grade.letter}: {report.grade.reason}",
        *(
            f"worst {column}: {row.name}, {row.metric} of {row.source} {slice_claim(row)}"
            for column, row in worst.items()
        ),
    ]


def _table(report: ReportRecord, claims: Sequence[NumberClaim]) -> str:
    columns = tuple(column for column, _ in _COLUMNS)
    rows = tuple(tuple(cell(report, each) for _, cell in _COLUMNS) for each in claims)
    return Table("", columns, rows).to_md()


def _flags(report: ReportRecord) -> dict[str, None]:
    return dict.fromkeys(
        f"{flag.id}{f' ({flag.source})' if flag.source else ''}: {flag.message}"
        for flag in report.flags
    )


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {md_text(line)}" for line in lines)


def _of(name: str, heading: str) -> tuple[Column, _Made]:
    """Return the column of a fact that is printed as it is."""
    return Column(name, heading), lambda _, each: Cell.of(str(getattr(each, name)))


def _count(name: str, heading: str) -> tuple[Column, _Made]:
    column = Column(name, heading, number=True)
    return column, lambda _, each: Cell(each.facts[name], f"{each.facts[name]:,}")


def _end(name: str, heading: str) -> tuple[Column, _Made]:
    """Return the column of a fraction; lower ends are rounded down and upper ends up."""

    def cell(_: ReportRecord, each: NumberClaim) -> Cell:
        bound, value = each.direction is Direction.LOWER_BOUND, each.facts[name]
        forms = {"value": "at-least" if bound else "percent", "low": "at-least", "high": "at-most"}
        form = forms[name]
        if each.metric.is_loss:
            form = "loss" if form == "percent" else f"loss-{form}"
        return Cell(value, "" if value is None else percent(value, form))

    return Column(name, heading, number=True), cell


_COLUMNS: tuple[tuple[Column, _Made], ...] = (
    _of("metric", "metric"),
    _of("source", "source"),
    _of("slice", "inputs"),
    _end("value", "value"),
    _end("low", "at least"),
    _end("high", "at most"),
    (
        Column("confidence", "confidence", number=True),
        lambda _, each: Cell(each.confidence, f"{100 * each.confidence:g}"),
    ),
    _of("direction", "direction"),
    _of("claim", "applies to"),
    _of("set", "set"),
    _count("inputs", "number"),
    _count("draws", "draws"),
    (Column("seed", "seed", number=True), lambda report, _: Cell.of(report.seed)),
    _of("method", "interval"),
    (
        Column("clause", "methods"),
        lambda _, each: Cell.of(_BOUND if each.metric is Metric.BOUND else _STATISTICAL),
    ),
    (Column("flags", "flags"), lambda _, each: Cell.of(", ".join(each.because))),
    (Column("remarks", "may be lower still"), lambda _, each: Cell.of(", ".join(each.remarks))),
    _of("pointer", "in report.json"),
    _of("sha256", "SHA-256"),
    _of("interval_pointer", "its interval"),
    _of("interval_sha256", "SHA-256 of the interval"),
)


TECHNICAL_DOCUMENTATION = Document({".md": technical_documentation})
