"""What stands beside a number when it is quoted: the interval to trust, and whom it speaks about."""

from __future__ import annotations

from nppr.report.schema import WITH_REFERENCES, Report, Result
from nppr.statistics.estimates import APPROXIMATE
from nppr.types import Claim, Direction, Metric

__all__ = [
    "GUARANTEED",
    "bounds_of",
    "guaranteed",
    "interval_of",
    "not_split",
    "population_bound",
    "ratio_of",
    "reference_of",
]

GUARANTEED = ("betting", "clopper-pearson", "empirical-bernstein")
"""Methods whose intervals hold at any size of sample, the one to quote first."""

RATIO = ":c="
"""Between the name of a bound's source and its c."""


def guaranteed(report: Report, row: Result) -> Result | None:
    """The result of the same number and claim whose interval holds at any size of sample."""
    if row.direction is Direction.LOWER_BOUND:
        return None
    same = {
        other.method: other
        for other in report.results
        if (other.source, other.metric, other.claim) == (row.source, row.metric, row.claim)
        and other.value is not None
    }
    return next((same[method] for method in GUARANTEED if method in same), None)


def interval_of(report: Report, row: Result) -> Result:
    """The result whose interval is printed beside this number.

    It is the guaranteed one where the number's own is approximate and outside of where it was tested.
    """
    flagged = APPROXIMATE in row.flags
    return (guaranteed(report, row) if flagged else None) or row


def bounds_of(report: Report) -> list[Result]:
    """What holds for all noise of bounded density ratio: one result a value of c."""
    firsts: dict[str, Result] = {}
    for row in report.results:
        if row.metric is Metric.BOUND and row.value is not None:
            firsts.setdefault(row.source, row)
    return list(firsts.values())


def population_bound(report: Report, row: Result) -> Result | None:
    """The same bound about the population, for one that speaks about the test set."""
    for other in report.results:
        same = (other.source, other.metric) == (row.source, row.metric)
        if same and other.claim is Claim.POPULATION and other.value is not None:
            return None if other is row else other
    return None


def not_split(report: Report) -> list[str]:
    """Noise that splitting was asked to follow and did not."""
    if not (report.rare or report.settings.get("rare_calls")):
        return []
    followed = {entry["source"] for entry in report.rare}
    asked = dict.fromkeys(
        row.source.rpartition(RATIO)[0] if row.metric is Metric.BOUND else row.source
        for row in report.results
        if row.metric in (Metric.PR, Metric.NPPR, Metric.BOUND) and row.value is not None
    )
    return [
        source
        for source in asked
        if source not in followed and not source.endswith(WITH_REFERENCES)
    ]


def ratio_of(row: Result) -> str:
    """The c of a bound, which stands behind its name."""
    return row.source.rpartition(RATIO)[2]


def reference_of(report: Report, row: Result) -> str:
    """The noise to which the densities of a bound are compared, empty where the run does not say."""
    options = report.settings.get("options") or {}
    known = options.get(row.source.rpartition(RATIO)[0])
    return str(known.get("reference", "")) if isinstance(known, dict) else ""
