"""What follows from several numbers of a report: the one to quote, the bounds, the rows of a table.

Also the means over inputs behind the numbers, from the lines of `per_input.csv`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from nppr.core.tally import FloatArray, Metric
from nppr.errors import RunFolderError
from nppr.noise.family import FLOOR_NOISE
from nppr.report.model import ReportRecord, SliceResult
from nppr.report.number import MERGED, LearnedSubject, Number
from nppr.report.per_input import PerInput
from nppr.statistics.paired import Share

SHARES = (Metric.ACCURACY, Metric.AR, Metric.NPPR, Metric.PR, Metric.CORRUPTION)
"""Metrics that are fractions of inputs, in the order of a table; more is better in all of them."""

ORDER = (*SHARES, Metric.BOUND, Metric.STRESS)
"""Metrics in a table, in the order of the theory: AR <= NPPR <= PR."""

Key = tuple[Metric, str]
"""A metric and the name of a number."""

_ANSWERS = (Metric.NPPR, Metric.PR, Metric.AR, Metric.BOUND, Metric.CORRUPTION, Metric.ACCURACY)
_TOLERANCE = 1e-6


def headlines(report: ReportRecord, metrics: Iterable[Metric] = SHARES) -> dict[Key, Number]:
    """Return the first number of every name and metric, which a table shows; failed ones too."""
    found: dict[Key, Number] = {}
    for number in report.numbers:
        if number.metric in metrics:
            found.setdefault((number.metric, number.name), number)
    return found


def table_rows(report: ReportRecord) -> list[Number]:
    """Return the numbers of a table in order: NPPR down the ladder, the others by value.

    Learned noise with the reference noises is left out if it repeats the learned noise alone.
    """
    bounds = bounds_of(report)
    rows = [
        row
        for row in headlines(report, ORDER).values()
        if row.metric is not Metric.BOUND or row.value is None or row in bounds
    ]
    alone = {row.tally for row in rows if row.learned and not row.with_references}

    def place(row: Number) -> tuple[float, ...]:
        value = 2.0 if row.value is None else row.value
        learned = row.learned.place if row.learned else (0.0, 0, 0)
        return (ORDER.index(row.metric), *learned, value)

    shown = (row for row in rows if not (row.with_references and row.tally in alone))
    return sorted(shown, key=place)


def bounds_of(report: ReportRecord) -> list[Number]:
    """Return what holds for all noise of stated sets: one number per set, those asked for first.

    Every fixed noise is read as bounds too. Only the bounds around Uniform noise are returned, or those
    around the first noise if Uniform noise was not measured.
    """
    rows = [row for row in headlines(report, (Metric.BOUND,)).values() if row.value is not None]
    read = [row for row in rows if row.bound and not row.bound.asked]
    references = [row.source for row in read]
    chosen = FLOOR_NOISE if FLOOR_NOISE in references else next(iter(references), None)
    asked = [row for row in rows if row not in read]
    return [*asked, *(row for row in read if row.source == chosen)]


def find_attacked(report: ReportRecord) -> Number | None:
    """Return AR of everything in the budget together, else the lowest one; None without attacks."""
    rows = [r for r in table_rows(report) if r.metric is Metric.AR and r.value is not None]
    return next((row for row in rows if row.source == MERGED), rows[0] if rows else None)


def not_followed(report: ReportRecord) -> list[str]:
    """Return the noise that splitting was asked to follow and did not."""
    if not (report.rare or report.settings.measure.rare_calls):
        return []
    followed = {entry.source for entry in report.rare}
    noise = (Metric.PR, Metric.NPPR, Metric.BOUND)
    asked = dict.fromkeys(
        row.tally
        for row in report.numbers
        if row.metric in noise and row.value is not None and not row.with_references
    )
    return [tally for tally in asked if tally is not None and tally not in followed]


def worst_slices(report: ReportRecord) -> dict[str, SliceResult]:
    """Return the slice with the lowest number of each column; slices are in this order."""
    found: dict[str, SliceResult] = {}
    for row in report.slices:
        found.setdefault(row.column, row)
    return found


def headline_of(report: ReportRecord) -> Number | None:
    """Return the number to quote: NPPR of the widest learned set, else the lowest of another metric.

    Not the lowest NPPR on the evaluate split, but that of the set which the assessor stated.
    """
    rows = [row for row in table_rows(report) if row.value is not None]
    found = ([row for row in rows if row.metric is metric] for metric in _ANSWERS)
    return next((min(each, key=by_width) for each in found if each), None)


def by_width(row: Number) -> tuple[float, ...]:
    """Sort key that puts the widest admissible set first; other numbers keep their order."""
    if row.learned is not None:
        return row.learned.width
    return LearnedSubject().width if row.metric is Metric.NPPR else ()


def missing_search(report: ReportRecord) -> Number | None:
    """Return an NPPR that failed: any, or beside an NPPR that of a wider admissible set."""
    quoted = headline_of(report)
    failed = [row for row in table_rows(report) if row.metric is Metric.NPPR and row.value is None]
    if quoted is None or quoted.metric is not Metric.NPPR:
        return next(iter(failed), None)
    return next((row for row in failed if by_width(row) < by_width(quoted)), None)


def find_lower(report: ReportRecord, row: Number) -> list[Number]:
    """Return NPPR and PR of sets inside this one that are lower on the evaluate split."""
    own = row.learned or LearnedSubject()

    def inside(other: Number) -> bool:
        if other.metric is Metric.PR:
            return not own.floor and other.is_fixed
        return other.metric is Metric.NPPR and own.contains(other.learned or LearnedSubject())

    return [
        other
        for other in table_rows(report)
        if inside(other)
        and not other.is_repeated
        and other.value is not None
        and row.value is not None
        and other.value < row.value
    ]


def measured_source(report: ReportRecord, per_input: PerInput, row: Number) -> str | None:
    """Return the lines of `per_input.csv` behind a number, else those of one of the same metric."""
    same = [row, *(other for other in table_rows(report) if other.metric is row.metric)]
    known = per_input.sources
    return next((each.tally for each in same if each.tally in known), None)


def lines_of(per_input: PerInput | None, path: Path) -> dict[str, PerInput]:
    """Return the lines of every source; all have the same inputs in the same order."""
    if per_input is None:
        return {}
    sources = {name: per_input.of(name) for name in per_input.sources}
    lines = {name: each.at(each["index"].argsort(kind="stable")) for name, each in sources.items()}
    first = next(iter(lines.values()), None)
    for source, each in lines.items():
        assert first is not None
        columns = "index", "clean_correct"
        same = all(np.array_equal(each[name], first[name]) for name in columns)
        if not same or each["draws"].min() < 1:
            raise RunFolderError(
                f"`run` must hold a per_input.csv with the same inputs for every source, in"
                f" {str(path)!r} the lines of {source!r} differ."
                " Repeat the run's command to write it again."
            )
    return lines


def shares_of(report: ReportRecord, lines: dict[str, PerInput], path: Path) -> dict[Key, Share]:
    """Return the mean over inputs behind every number whose lines are there; both must agree."""
    found = {}
    for key, row in headlines(report).items():
        share = _share(report, lines, row)
        if share is None or row.value is None:
            continue
        if abs(share.value - row.value) <= _TOLERANCE:
            found[key] = share
        elif row.tally in lines or row.metric is Metric.ACCURACY:
            raise RunFolderError(
                f"`run` must hold a per_input.csv that belongs to its report.json, in"
                f" {str(path)!r} the {row.metric.value} of {row.name!r} is"
                f" {share.value:.6g} in the one and {row.value:.6g} in the other."
                " Repeat the run's command to write them again."
            )
    return found


def _share(report: ReportRecord, lines: dict[str, PerInput], row: Number) -> Share | None:
    """Return the mean behind a number, or None if its lines are not there."""
    first = next(iter(lines.values()), None)
    if first is None or not len(first):
        return None
    correct: FloatArray = first["clean_correct"].astype(np.float64)
    if row.metric is Metric.ACCURACY:
        return Share(correct, np.ones(len(correct)), outcomes=True)
    rates = _merged(report, lines) if row.source == MERGED else _rates(lines, row)
    if rates is None or not correct.sum():
        return None
    single = row.tally in lines and bool((lines[row.tally]["draws"] == 1).all())
    return Share(correct * rates, correct, outcomes=single or row.metric.is_outcome)


def _rates(lines: dict[str, PerInput], row: Number) -> FloatArray | None:
    """Fraction of correct draws per input; of attacks and corruptions, whether all were."""
    if row.tally not in lines:
        return None
    rates: FloatArray = lines[row.tally]["correct"] / lines[row.tally]["draws"]
    return (rates == 1).astype(np.float64) if row.metric.is_outcome else rates


def _merged(report: ReportRecord, lines: dict[str, PerInput]) -> FloatArray:
    """Whether an input stayed correct under every draw of every source of the budget."""
    outside = {row.tally for row in report.numbers if row.radius is None}
    inside = [each for source, each in lines.items() if source not in outside]
    unbroken = np.all([each["correct"] == each["draws"] for each in inside], axis=0)
    return np.asarray(unbroken, dtype=np.float64)
