"""What the results of a report state together.

The interval to print beside a number, the result to quote, bounds, and the means over inputs behind the
numbers. Everything is read off fields of results, never off their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from nppr.core.tally import Claim, Direction, FloatArray, Metric
from nppr.errors import RunFolderError
from nppr.noise.family import FLOOR_NOISE
from nppr.report.model import MERGED, ReportRecord, Result, SliceResult
from nppr.report.per_input import PerInput
from nppr.statistics.estimates import APPROXIMATE, SEQUENCE
from nppr.statistics.paired import Share

ORDER = (
    Metric.ACCURACY,
    Metric.AR,
    Metric.NPPR,
    Metric.PR,
    Metric.CORRUPTION,
    Metric.BOUND,
    Metric.STRESS,
)
"""Metrics in a table, in the order of the theory: AR <= NPPR <= PR."""

SHARES = (Metric.ACCURACY, Metric.AR, Metric.NPPR, Metric.PR, Metric.CORRUPTION)
"""Metrics that are fractions of inputs, in the order of a table; more is better in all of them."""

CLEAN_CORRECT = (Metric.AR, Metric.NPPR, Metric.PR, Metric.CORRUPTION)
"""Metrics over the clean-correct inputs: those classified correctly without noise."""

ONE_OUTCOME = (Metric.AR, Metric.CORRUPTION)
"""Metrics with one outcome per input: whether all draws of it are correct."""

GUARANTEED = (SEQUENCE, "betting", "clopper-pearson", "empirical-bernstein", "exact")
"""Methods whose intervals hold at any sample size, the one to print first."""

Key = tuple[Metric, str]
"""A metric and the name of a row."""

_ANSWERS = (Metric.NPPR, Metric.PR, Metric.AR, Metric.BOUND, Metric.CORRUPTION, Metric.ACCURACY)
_TOLERANCE = 1e-6


def headlines(report: ReportRecord, metrics: Iterable[Metric] = SHARES) -> dict[Key, Result]:
    """The first result of every row and metric: the one a table shows, failed ones too."""
    found: dict[Key, Result] = {}
    for row in report.results:
        if row.metric in metrics:
            found.setdefault((row.metric, row.name), row)
    return found


def table_rows(report: ReportRecord) -> list[Result]:
    """The first result of every row, in the order of a table: NPPR down the ladder, else by value.

    Learned noise with the reference noises is left out where it repeats the learned noise alone.
    """
    bounds = bounds_of(report)
    rows = [
        row
        for row in headlines(report, ORDER).values()
        if row.metric is not Metric.BOUND or row.value is None or row in bounds
    ]
    alone = {row.tally for row in rows if row.metric is Metric.NPPR and not row.with_references}

    def place(row: Result) -> tuple[float, ...]:
        value = 2.0 if row.value is None else row.value
        depth = row.dependency.depth if row.dependency else 0
        learned = (row.floor or 0.0, depth) if row.metric is Metric.NPPR else (0.0, 0)
        return (ORDER.index(row.metric), *learned, value)

    return sorted(
        (row for row in rows if not (row.with_references and row.tally in alone)), key=place
    )


def guaranteed(report: ReportRecord, row: Result) -> Result | None:
    """The result of the same number and claim whose interval holds at any sample size."""
    if row.direction is Direction.LOWER_BOUND:
        return None

    def number(other: Result) -> tuple[object, ...]:
        return (
            other.name, other.metric, other.claim, other.gamma, other.radius, other.lowest_of
        )  # fmt: skip

    same = {
        other.method: other
        for other in (*report.other_radii, *report.results)
        if number(other) == number(row) and other.value is not None
    }
    return next((same[method] for method in GUARANTEED if method in same), None)


def interval_of(report: ReportRecord, row: Result) -> Result:
    """The result whose interval is printed beside this number.

    It is the guaranteed one where the number's own is approximate and outside its tested regime.
    """
    flagged = APPROXIMATE in row.flags
    return (guaranteed(report, row) if flagged else None) or row


def bounds_of(report: ReportRecord) -> list[Result]:
    """What holds for all noise of stated sets: one result per set, those asked for first.

    Every fixed noise is read as bounds too; of these only the bounds around Uniform noise, or where it
    was not measured around the first noise, are returned.
    """
    rows = [row for row in headlines(report, (Metric.BOUND,)).values() if row.value is not None]
    read = [row for row in rows if is_fixed(report, row)]
    references = [row.source for row in read]
    chosen = FLOOR_NOISE if FLOOR_NOISE in references else next(iter(references), None)
    asked = [row for row in rows if row not in read]
    return [*asked, *(row for row in read if row.source == chosen)]


def population_bound(report: ReportRecord, row: Result) -> Result | None:
    """The same bound for the population, for one that holds for the test set."""
    for other in report.results:
        same = (other.name, other.metric) == (row.name, row.metric)
        if same and other.claim is Claim.POPULATION and other.value is not None:
            return None if other is row else other
    return None


def is_fixed(report: ReportRecord, row: Result) -> bool:
    """Whether a result is of noise that sees neither input nor classifier."""
    return any(source.fixed and source.name == row.source for source in report.settings.sources)


def attacked(report: ReportRecord) -> Result | None:
    """AR of everything in the budget together, else the lowest one; None without attacks."""
    rows = [r for r in table_rows(report) if r.metric is Metric.AR and r.value is not None]
    return next((row for row in rows if row.source == MERGED), rows[0] if rows else None)


def not_followed(report: ReportRecord) -> list[str]:
    """Noise that splitting was asked to follow and did not."""
    if not (report.rare or report.settings.measure.rare_calls):
        return []
    followed = {entry.source for entry in report.rare}
    noise = (Metric.PR, Metric.NPPR, Metric.BOUND)
    asked = dict.fromkeys(
        row.tally
        for row in report.results
        if row.metric in noise and row.value is not None and not row.with_references
    )
    return [tally for tally in asked if tally is not None and tally not in followed]


def worst_slices(report: ReportRecord) -> dict[str, SliceResult]:
    """The slice with the lowest number of each column; the rows of a column are in this order."""
    found: dict[str, SliceResult] = {}
    for row in report.slices:
        found.setdefault(row.column, row)
    return found


def headline_of(report: ReportRecord) -> Result | None:
    """The result to quote: NPPR of the widest learned set, else the lowest of another metric.

    Not what came out lowest on the evaluate split, but the set that the assessor stated.
    """
    rows = [row for row in table_rows(report) if row.value is not None]
    found = ([row for row in rows if row.metric is metric] for metric in _ANSWERS)
    return next((min(each, key=by_width) for each in found if each), None)


def as_lowest(report: ReportRecord, row: Result) -> Result:
    """The same number with the interval to quote if it was chosen because it is the lowest."""
    chosen = (
        other
        for other in report.results
        if other.lowest_of and (other.metric, other.name) == (row.metric, row.name)
    )
    return next(chosen, row)


def by_width(row: Result) -> tuple[float, ...]:
    """Sorts NPPR by the width of the learned set, the widest first.

    Widest is the smallest floor, then the lowest learned rung, with the reference noises before
    without: what was chosen on the select split. `per-input`, which is searched for on the evaluated
    inputs like an attack, and repeated searches come last.
    """
    if row.metric is not Metric.NPPR:
        return ()
    last = row.fit_seed is not None, row.dependency is not None and not row.dependency.is_fitted
    depth = row.dependency.depth if row.dependency else 0
    return (*last, row.floor or 0.0, -depth, not row.with_references)


def missing_search(report: ReportRecord) -> Result | None:
    """An NPPR that failed: any, or beside an NPPR that of a wider admissible set."""
    quoted = headline_of(report)
    failed = [row for row in table_rows(report) if row.metric is Metric.NPPR and row.value is None]
    if quoted is None or quoted.metric is not Metric.NPPR:
        return next(iter(failed), None)
    return next((row for row in failed if by_width(row) < by_width(quoted)), None)


def came_lower(report: ReportRecord, row: Result) -> list[Result]:
    """NPPR and PR of rows inside the set of this one that are below it on the evaluate split."""

    def inside(other: Result) -> bool:
        if other.metric is Metric.PR:
            return not row.floor and is_fixed(report, other)
        if other.metric is not Metric.NPPR or (other.floor or 0.0) < (row.floor or 0.0):
            return False
        sets = row.dependency, other.dependency
        return sets[0] is None or sets[1] is None or sets[0].contains(sets[1])

    return [
        other
        for other in table_rows(report)
        if inside(other)
        and other.fit_seed is None
        and other.value is not None
        and row.value is not None
        and other.value < row.value
    ]


def measured_source(report: ReportRecord, per_input: PerInput, row: Result) -> str | None:
    """The lines of `per_input.csv` behind a result, else those of a result of the same metric."""
    same = [row, *(other for other in table_rows(report) if other.metric is row.metric)]
    known = per_input.sources
    return next((each.tally for each in same if each.tally in known), None)


def lines_of(per_input: PerInput | None, path: Path) -> dict[str, PerInput]:
    """The lines of every source, all of the same inputs in the same order."""
    if per_input is None:
        return {}
    lines = {name: _sorted(per_input.of(name)) for name in per_input.sources}
    first = next(iter(lines.values()), None)
    for source, each in lines.items():
        assert first is not None
        same = all(
            np.array_equal(each[column], first[column]) for column in ("index", "clean_correct")
        )
        if not same or each["draws"].min() < 1:
            raise RunFolderError(
                f"`run` must hold a per_input.csv with the same inputs for every source, in"
                f" {str(path)!r} the lines of {source!r} differ."
                " Repeat the run's command to write it again."
            )
    return lines


def shares_of(report: ReportRecord, lines: dict[str, PerInput], path: Path) -> dict[Key, Share]:
    """The mean over inputs behind every headline whose lines are there; both must agree."""
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


def _share(report: ReportRecord, lines: dict[str, PerInput], row: Result) -> Share | None:
    """The mean behind a result, or None where its lines are not there."""
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
    return Share(correct * rates, correct, outcomes=single or row.metric in ONE_OUTCOME)


def _rates(lines: dict[str, PerInput], row: Result) -> FloatArray | None:
    """Fraction of correct draws per input; of attacks and corruptions, whether all were."""
    if row.tally not in lines:
        return None
    correct, draws = lines[row.tally]["correct"], lines[row.tally]["draws"]
    every = row.metric in ONE_OUTCOME
    rates: FloatArray = (correct == draws).astype(np.float64) if every else correct / draws
    return rates


def _merged(report: ReportRecord, lines: dict[str, PerInput]) -> FloatArray:
    """Whether an input stayed correct under every draw of every source of the budget."""
    outside = {row.tally for row in report.results if row.metric is Metric.CORRUPTION}
    inside = [each for source, each in lines.items() if source not in outside]
    unbroken = np.all([each["correct"] == each["draws"] for each in inside], axis=0)
    return np.asarray(unbroken, dtype=np.float64)


def _sorted(lines: PerInput) -> PerInput:
    order = np.argsort(lines["index"], kind="stable")
    return PerInput({name: column[order] for name, column in lines.columns.items()})
