"""The number of one entry, with its interval, and its spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nppr.compare.differences import outside_regime
from nppr.compare.entries import Gathered
from nppr.compare.readings import Reading
from nppr.compare.schema import Standing
from nppr.report.schema import Report, Result
from nppr.report.shares import Key, headlines
from nppr.statistics.estimates import APPROXIMATE, MOST_CONFIDENT
from nppr.statistics.intervals import Interval, clopper_pearson, half_width
from nppr.statistics.paired import Share
from nppr.types import Metric

__all__ = ["standing_of"]

NOT_MEASURED = "not measured in this run"


def standing_of(
    position: int, entry: Gathered, key: Key, reading: Reading | None, confidence: float
) -> Standing:
    """The mean over the runs of an entry; that of one run at its own confidence as it is reported."""
    rows = [headlines(run.report).get(key) for run in entry.runs]
    values = [row.value for row in rows if row is not None and row.value is not None]
    first = rows[0]
    if first is None or len(values) < len(rows):
        return _absent(position, entry, rows, confidence)
    normalised = _normalised([run.report for run in entry.runs], key)
    found: tuple[float | None, float | None, float, str | None, tuple[str, ...]]
    if len(rows) == 1 and (first.confidence == confidence or reading is None):
        found = (first.low, first.high, first.confidence, first.method, first.flags)
    elif reading is None:
        found = (None, None, confidence, None, ())
    else:
        interval, method, flags = _interval(reading.share, confidence)
        found = (interval.low, interval.high, confidence, method, flags)
    low, high, level, method_used, flags_used = found
    return Standing(
        entry=position,
        value=float(np.mean(values)),
        low=low,
        high=high,
        confidence=level,
        method=method_used,
        direction=first.direction,
        std=_std(values),
        normalised=float(np.mean(normalised)) if normalised else None,
        normalised_std=_std(normalised),
        inputs=first.inputs if reading is None else int(np.count_nonzero(reading.share.below)),
        draws=first.draws,
        flags=flags_used,
    )


def _interval(share: Share, confidence: float) -> tuple[Interval, str, tuple[str, ...]]:
    """Exact for a share of inputs, else the value and t standard errors."""
    if share.even and set(np.unique(share.counted)) <= {0.0, 1.0}:
        right = np.array(round(float(share.counted.sum())))
        low, high = clopper_pearson(right, len(share.counted), confidence)
        return Interval(float(low), float(high)), "clopper-pearson", ()
    counted = Share(share.above[share.below > 0], share.below[share.below > 0])
    half = half_width(counted.influence, confidence)
    interval = Interval(max(0.0, share.value - half), min(1.0, share.value + half))
    flagged = outside_regime(share) or confidence > MOST_CONFIDENT
    return interval, "normal", (APPROXIMATE,) if flagged else ()


def _absent(
    position: int, entry: Gathered, rows: Sequence[Result | None], confidence: float
) -> Standing:
    reasons = []
    for row, run in zip(rows, entry.runs, strict=True):
        seed = f"seed {run.report.seed}: " if len(rows) > 1 else ""
        if row is None:
            reasons.append(seed + NOT_MEASURED)
        elif row.value is None:
            reasons.append(seed + (row.error or NOT_MEASURED))
    return Standing(
        entry=position, value=None, low=None, high=None, confidence=confidence, method=None,
        direction=None, std=None, normalised=None, normalised_std=None, inputs=0, draws=0,
        error="; ".join(dict.fromkeys(reasons)),
    )  # fmt: skip


def _normalised(reports: Sequence[Report], key: Key) -> list[float]:
    rows = [report.headline(key[1], Metric.NORMALISED_ACCURACY) for report in reports]
    values = [row.value for row in rows if row is not None and row.value is not None]
    return values if len(values) == len(reports) else []


def _std(values: Sequence[float]) -> float | None:
    """Standard deviation over seeds, with n - 1 below; None for one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
