"""The noise in frames of the user's sensor, in sentences, and the structure that fits it."""

from __future__ import annotations

import math
from collections.abc import Callable

from nppr.core.tally import Metric
from nppr.noise.structures import ANY, STATIONARY, WHITE
from nppr.report.model import ReportRecord
from nppr.statistics.frame_statistics import (
    FEWEST_TESTED,
    INSIDE,
    LEVEL,
    Correlation,
    FrameStatistics,
)

SHOWN_LAGS = (1, 2, 4, 8, 16)
CUT_OFF, DEPENDENT = 0.01, 0.1
"""Shares of values at an end of the range, and correlations of consecutive frames, worth a remark."""

NAME = "noise-samples"


def describe_samples(report: ReportRecord) -> list[str]:
    """Describe the noise in the frames that were given, a sentence or two in each line."""
    found = report.noise_samples
    if found is None:
        return []
    unit = _in_255 if report.data.layout is None else _in_range
    shape = " x ".join(map(str, found.shape))
    stds = ", ".join(map(unit, found.std)) + " by channel" * (len(found.std) > 1)
    quantiles = ", ".join(f"{unit(value)} ({100 * share:g} %)" for share, value in found.quantiles)
    removed = (
        f"The mean of the frames has standard deviation {unit(found.pattern_std)} over the positions."
        " It is removed: it is the scene or a fixed pattern of the sensor. The noise of the column"
        f" {ANY} may include a fixed pattern."
    )
    lines = [
        name_structure(report, found),
        f"{found.frames} frames of {shape}, standard deviation {stds}.",
        _suggest_radius(report, found, unit),
        f"Quantiles of the noise: {quantiles}.",
        removed,
    ]
    if found.at_ends:
        cut = ": the noise is cut off there" if found.at_ends > CUT_OFF else ""
        lines.append(f"{100 * found.at_ends:.2g} % of the values are at an end of the range{cut}.")
    shown = [each for each in found.autocorrelation if each.lag in SHOWN_LAGS]
    for name in dict.fromkeys(each.between for each in shown):
        values = (f"lag {each.lag}: {_with_ends(each)}" for each in shown if each.between == name)
        lines.append(f"Autocorrelation {name}: {'; '.join(values)}.")
    if found.channels:
        pairs = (f"{each.between}: {_with_ends(each)}" for each in found.channels)
        lines.append(f"Correlation between channels: {'; '.join(pairs)}.")
    level = f"{100 * found.confidence:g} %"
    lines.append(
        f"The intervals of all correlations hold together, approximately, with {level} confidence."
    )
    lines.append(_describe_positions(found))
    if found.consecutive > DEPENDENT:
        lines.append(
            f"Consecutive frames are correlated ({found.consecutive:.2f}), so the intervals are too"
            " narrow: they take frames as independent. Leave more time between frames."
        )
    return [*lines, _describe_draws(report, found)]


def name_structure(report: ReportRecord, found: FrameStatistics) -> str:
    """Name the structure whose column of the table fits the noise."""
    length, least = found.length, min(side for side in report.data.shape[1:] if side > 1)
    unseen = f" Correlations up to {_up(found.unseen)} may remain undetected."
    if not found.is_stationary:
        return f"Your frames are noisier at some positions than at others: read the column {ANY}."
    if length is None or length > least:
        lag = max((each.lag for each in found.autocorrelation), default=0)
        far = lag if length is None else length - 1
        return f"Your frames are still correlated {far} pixels apart: read the column {ANY}."
    if length == 1:
        return f"Your frames look white: read the column {WHITE}.{unseen}"
    return (
        f"Your frames look stationary with correlation length {length}: read the column {STATIONARY}"
        f" with --correlation-length {length}.{unseen}"
    )


def _suggest_radius(
    report: ReportRecord, found: FrameStatistics, unit: Callable[[float], str]
) -> str:
    """Suggest the radius that contains the noise."""
    if report.budget.norm == "l2":
        longest = found.longest * math.sqrt(math.prod(report.data.shape))
        return (
            f"Suggested radius: --eps {_up(longest)}. The largest noise of {found.frames} frames,"
            f" scaled to the size of an input, has l2 length {longest:.3g}."
        )
    return (
        f"Suggested radius: --eps {_up(found.inside)}. {100 * INSIDE:g} % of the absolute values are at"
        f" most {unit(found.inside)}; {found.beyond:,} of {found.values:,} are larger, up to"
        f" {unit(found.largest)}."
    )


def _describe_positions(found: FrameStatistics) -> str:
    """State the test of equal variances at all positions."""
    blocks = f"Variances of blocks differ by a factor of up to {found.block_ratio:.2f}."
    if found.frames < FEWEST_TESTED:
        return f"{blocks} Fewer than {FEWEST_TESTED} frames cannot show whether that is chance."
    test = f"(p = {found.position_p:.3g}, level {100 * LEVEL:g} %)"
    if found.is_stationary:
        return f"The variance shows no difference between positions beyond chance {test}. {blocks}"
    return f"The variance differs between positions {test}. {blocks}"


def _describe_draws(report: ReportRecord, found: FrameStatistics) -> str:
    """State how the noise is drawn and whether it is in the budget."""
    row = report.headline(NAME, Metric.PR)
    frame, image = found.shape[1:], report.data.shape[1:]
    ways = {
        "cropped at random places": any(map(int.__gt__, frame, image)),
        "repeated from random starts": any(map(int.__lt__, frame, image)),
    }
    how = "".join(f", {each}" for each, used in ways.items() if used)
    if row is not None and row.radius is not None:
        where = "stays in the budget"
    elif report.settings.measure.radii:
        where = "has no budget, because it is the same at all radii"
    else:
        where = "leaves the budget, is not clipped to it and counts as noise without a budget"
    return (
        f"The source {NAME} draws whole frames with replacement{how}. It {where}. Its PR is for these"
        f" {found.frames} frames: other frames of the sensor are not in its interval."
    )


def _with_ends(each: Correlation) -> str:
    """Return a correlation with its interval, rounded outwards."""
    low, high = math.floor(100 * each.low) / 100, math.ceil(100 * each.high) / 100
    return f"{round(each.value, 2) + 0.0:.2f} ({low:.2f} to {high:.2f})"


def _in_255(value: float) -> str:
    return f"{255 * value:.3g}/255"


def _in_range(value: float) -> str:
    return f"{100 * value:.3g} % of the range"


def _up(value: float) -> str:
    """Round up to two digits."""
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(value / step - 1e-9) * step:.2g}"
