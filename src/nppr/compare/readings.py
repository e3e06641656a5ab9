"""The numbers of a run as means over inputs, read off its `per_input.csv`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nppr.errors import RunFolderError
from nppr.fit import FAMILY
from nppr.report.folder import RunFiles
from nppr.report.per_input import PerInput
from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.statistics.paired import Share
from nppr.types import FloatArray, IntArray, Metric

__all__ = ["COMPARED", "Key", "Reading", "gathered", "headlines", "readings_of", "won_by_noise"]

COMPARED = (Metric.ACCURACY, Metric.AR, Metric.NPPR, Metric.PR, Metric.CORRUPTION)
"""Metrics that are shares of inputs, in the order of a table; more is better in all of them."""

BINARY = (Metric.AR, Metric.CORRUPTION)
"""Metrics of which an input is right under all its draws, or not."""

MERGED = "merged"
TOLERANCE = 1e-6

Key = tuple[Metric, str]
"""What is compared: a metric of a source."""


@dataclass(frozen=True, eq=False)
class Reading:
    """A mean over inputs; `indices` `(N,)` are those of the data set, ascending."""

    indices: IntArray
    share: Share


def headlines(report: Report) -> dict[Key, Result]:
    """The result of every source that a table shows, failed ones too."""
    found: dict[Key, Result] = {}
    for row in report.results:
        if row.metric in COMPARED:
            found.setdefault((row.metric, row.source), row)
    return found


def won_by_noise(report: Report) -> set[str]:
    """Learned sources that a reference noise beat on the select part."""
    return {made["source"] for made in report.distributions if _winner(made) != FAMILY}


def readings_of(run: RunFiles) -> dict[Key, Reading]:
    """All headlines whose lines the run holds; each mean must be the one of the report."""
    lines = _lines(run)
    found = {}
    for key, row in headlines(run.report).items():
        share = _share(run.report, lines, key)
        if share is None or row.value is None:
            continue
        if abs(share.value - row.value) > TOLERANCE:
            if row.source in lines or row.metric is Metric.ACCURACY:
                raise RunFolderError(
                    f"`run` must hold a per_input.csv that belongs to its report.json, in"
                    f" {str(run.path)!r} the {row.metric.value} of {row.source!r} is"
                    f" {share.value:.6g} in the one and {row.value:.6g} in the other."
                    " Repeat the run's command to write them again."
                )
            continue
        found[key] = Reading(next(iter(lines.values()))["index"], share)
    return found


def gathered(readings: Sequence[Reading]) -> Reading:
    """Several runs as one: an input counts as often as it was measured, its rates are added."""
    if len(readings) == 1:
        return readings[0]
    indices = np.unique(np.concatenate([reading.indices for reading in readings]))
    above, below = np.zeros(len(indices)), np.zeros(len(indices))
    for reading in readings:
        at = np.searchsorted(indices, reading.indices)
        above[at] += reading.share.above
        below[at] += reading.share.below
    return Reading(indices, Share(above, below))


def _share(report: Report, lines: dict[str, PerInput], key: Key) -> Share | None:
    """The mean of a metric and source, or None where the lines do not tell it."""
    metric, source = key
    first = next(iter(lines.values()), None)
    if first is None or not len(first):
        return None
    correct: FloatArray = first["clean_correct"].astype(np.float64)
    if metric is Metric.ACCURACY:
        return Share(correct, np.ones(len(correct)))
    rates = _merged(report, lines) if source == MERGED else _rates(report, lines, key)
    if rates is None or not correct.sum():
        return None
    return Share(correct * rates, correct)


def _rates(report: Report, lines: dict[str, PerInput], key: Key) -> FloatArray | None:
    """The share of right draws of every input; of attacks and corruptions, whether all were."""
    metric, source = key
    base = source.removesuffix(WITH_REFERENCES)
    if base != source:
        made = [each for each in report.distributions if each["source"] == base]
        winner = _winner(made[0]) if made else FAMILY
        source = base if winner == FAMILY else winner
    if source not in lines:
        return None
    right, draws = lines[source]["right"], lines[source]["draws"]
    rates: FloatArray = (right == draws).astype(np.float64) if metric in BINARY else right / draws
    return rates


def _merged(report: Report, lines: dict[str, PerInput]) -> FloatArray:
    """Whether an input was right under every draw of every source of the budget."""
    outside = {row.source for row in report.results if row.metric is Metric.CORRUPTION}
    inside = [each for source, each in lines.items() if source not in outside]
    unbroken = np.all([each["right"] == each["draws"] for each in inside], axis=0)
    return np.asarray(unbroken, dtype=np.float64)


def _lines(run: RunFiles) -> dict[str, PerInput]:
    """The lines of every source, all of the same inputs in the same order."""
    known = run.per_input
    lines = {} if known is None else {name: _sorted(known.of(name)) for name in known.sources}
    first = next(iter(lines.values()), None)
    for source, each in lines.items():
        assert first is not None
        same = all(
            np.array_equal(each[column], first[column]) for column in ("index", "clean_correct")
        )
        if not same or each["draws"].min() < 1:
            raise RunFolderError(
                f"`run` must hold a per_input.csv with the same inputs for every source, in"
                f" {str(run.path)!r} the lines of {source!r} are others."
                " Repeat the run's command to write it again."
            )
    return lines


def _sorted(lines: PerInput) -> PerInput:
    order = np.argsort(lines["index"], kind="stable")
    return PerInput({name: column[order] for name, column in lines.columns.items()})


def _winner(made: dict[str, object]) -> str:
    fit = made["fit"]
    assert isinstance(fit, dict)
    return str(fit.get("with_references", {}).get("winner", FAMILY))
