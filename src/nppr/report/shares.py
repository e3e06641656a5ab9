"""The numbers of a run as means over inputs, read off its `per_input.csv`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nppr.errors import RunFolderError
from nppr.report.per_input import PerInput
from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.search.search_record import FAMILY
from nppr.statistics.paired import Share
from nppr.types import FloatArray, Metric

__all__ = ["SHARES", "Key", "headlines", "lines_of", "shares_of", "winner_of"]

SHARES = (Metric.ACCURACY, Metric.AR, Metric.NPPR, Metric.PR, Metric.CORRUPTION)
"""Metrics that are shares of inputs, in the order of a table; more is better in all of them."""

BINARY = (Metric.AR, Metric.CORRUPTION)
"""Metrics of which an input is right under all its draws, or not."""

MERGED = "merged"
TOLERANCE = 1e-6

Key = tuple[Metric, str]
"""A metric of a source."""


def headlines(report: Report) -> dict[Key, Result]:
    """The result of every source that a table shows, failed ones too."""
    found: dict[Key, Result] = {}
    for row in report.results:
        if row.metric in SHARES:
            found.setdefault((row.metric, row.source), row)
    return found


def winner_of(made: Mapping[str, Any]) -> str:
    """What was worst on the select part: the family, or a reference noise by name."""
    return str(made["fit"].get("with_references", {}).get("winner", FAMILY))


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
                f" {str(path)!r} the lines of {source!r} are others."
                " Repeat the run's command to write it again."
            )
    return lines


def shares_of(report: Report, lines: dict[str, PerInput], path: Path) -> dict[Key, Share]:
    """All headlines that the lines tell; each mean must be the one of the report."""
    found = {}
    for key, row in headlines(report).items():
        share = _share(report, lines, key)
        if share is None or row.value is None:
            continue
        if abs(share.value - row.value) <= TOLERANCE:
            found[key] = share
        elif row.source in lines or row.metric is Metric.ACCURACY:
            raise RunFolderError(
                f"`run` must hold a per_input.csv that belongs to its report.json, in"
                f" {str(path)!r} the {row.metric.value} of {row.source!r} is"
                f" {share.value:.6g} in the one and {row.value:.6g} in the other."
                " Repeat the run's command to write them again."
            )
    return found


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
        winner = winner_of(made[0]) if made else FAMILY
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


def _sorted(lines: PerInput) -> PerInput:
    order = np.argsort(lines["index"], kind="stable")
    return PerInput({name: column[order] for name, column in lines.columns.items()})
