"""How numbers of a comparison are said: shares in %, differences in percentage points."""

from __future__ import annotations

from nppr.compare.schema import Compared, Comparison, Difference, Standing
from nppr.types import Direction, Metric

__all__ = [
    "answer",
    "legend",
    "letter",
    "percent",
    "points_range",
    "rule",
    "share_range",
    "short_method",
    "signed",
    "titled",
]

WHAT = {
    Metric.ACCURACY: "right answers without noise",
    Metric.AR: "inputs that {source} did not break",
    Metric.NPPR: "right answers under the worst noise found ({source})",
    Metric.PR: "right answers under {source} noise",
    Metric.CORRUPTION: "inputs that are right under the corruption {source}",
}
WHERE = {
    Metric.ACCURACY: "Without noise",
    Metric.AR: "Under attack by {source}",
    Metric.NPPR: "Under the worst noise found ({source})",
    Metric.PR: "Under {source} noise",
    Metric.CORRUPTION: "Under the corruption {source}",
}
TOGETHER = "all sources of the budget together"
"""What the source `merged` is."""

ANSWERS = (Metric.NPPR, Metric.PR, Metric.AR, Metric.CORRUPTION, Metric.ACCURACY)
"""What the page opens with: the first that has a difference."""

METHODS = {
    "paired-normal": "paired",
    "joint-bootstrap": "joint bootstrap",
    "unpaired-normal": "unpaired",
}


def letter(position: int) -> str:
    """A short name of an entry: A to Z, then by number.

    >>> letter(1), letter(30)
    ('B', 'R31')
    """
    return chr(ord("A") + position) if position < 26 else f"R{position + 1}"


def titled(comparison: Comparison, position: int) -> str:
    """An entry with its short name."""
    return f"{letter(position)}: {comparison.entries[position].name}"


def percent(standing: Standing) -> str:
    """The value in %, with its spread over seeds and the sign of a bound."""
    assert standing.value is not None
    sign = "≤ " if standing.direction is Direction.UPPER_BOUND else ""
    spread = "" if standing.std is None else f" ± {100 * standing.std:.1f}"
    return f"{sign}{100 * standing.value:.1f}{spread}"


def share_range(low: float, high: float) -> str:
    """An interval of a share in %."""
    return f"{100 * low:.1f}-{100 * high:.1f}"


def signed(value: float) -> str:
    """A difference in percentage points, with its sign.

    >>> signed(-0.0123), signed(0.00001)
    ('-1.2', '0.0')
    """
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def points_range(low: float, high: float) -> str:
    """An interval of a difference."""
    return f"{signed(low)} to {signed(high)}"


def short_method(method: str) -> str:
    """How an interval was made, in a word or two."""
    return METHODS.get(method, method)


def legend(metric: Metric, source: str) -> str:
    """What is counted."""
    return WHAT[metric].format(source=_called(source))


def answer(comparison: Comparison) -> str:
    """The comparison in one sentence: NPPR if it was measured, and whether entries separate."""
    for metric in ANSWERS:
        for result in comparison.results:
            if result.metric is metric and result.differences:
                return _sentence(result)
    counted = f"{len(comparison.entries[0].runs)} seeds of {comparison.entries[0].name}"
    return f"{counted}: nothing to compare with."


def rule(comparison: Comparison) -> str:
    """How ranks are given."""
    level = f"{100 * comparison.confidence:g} %"
    return (
        "Rank = 1 + the number of runs that are surely better. A run is surely better than another if"
        " the interval of their difference lies on one side of 0 at a confidence that makes all pairs"
        f" of the row hold together at {level} (Bonferroni: the error is divided by the number of"
        " pairs). Runs that do not separate share a rank. Where the approximate interval is outside of"
        " where it was tested (marked *), the guaranteed one decides."
    )


def _sentence(result: Compared) -> str:
    where = WHERE[result.metric].format(source=_called(result.source))
    verb = "is right" if result.metric is Metric.ACCURACY else "stays right"
    ranked = [s for s in result.standings if s.rank is not None and s.value is not None]
    ordered = sorted(ranked, key=lambda s: (s.rank or 0, -(s.value or 0)))
    leaders = [letter(s.entry) for s in ordered if s.rank == 1]
    values = [f"{letter(s.entry)} on {_amount(s)}" for s in ordered]
    values[0] = values[0].replace(" on ", f" {verb} on ", 1)
    counted = "the inputs" if verb == "is right" else "the inputs it gets right without noise"
    start = f"{where}, {_listed(values)} of {counted}."
    if len(ordered) > 2:
        if len(leaders) == len(ordered):
            return f"{start} Their differences do not separate them."
        if len(leaders) > 1:
            return f"{start} {_listed(leaders)} share the first rank."
        return f"{start} {leaders[0]} is surely ahead of all others."
    size = _size(result.differences[0])
    if len(leaders) > 1:
        return f"{start} The difference of {size} does not separate them."
    return f"{start} {leaders[0]} is surely ahead, by {size}."


def _size(found: Difference) -> str:
    """The difference without its sign; guaranteed ends where the approximate ones were not tested."""
    low, high, which = found.low, found.high, ""
    if found.flags and found.guaranteed_low is not None and found.guaranteed_high is not None:
        low, high, which = found.guaranteed_low, found.guaranteed_high, ", guaranteed"
    low, high = (low, high) if found.value > 0 else (-high, -low)
    ends = " to ".join(_unsigned(end) for end in (low, high))
    return f"{100 * abs(found.value):.1f} points ({ends}{which})"


def _unsigned(points: float) -> str:
    """A number of points, where a zero has no sign."""
    return signed(points).removeprefix("+")


def _amount(standing: Standing) -> str:
    bound = standing.direction is Direction.UPPER_BOUND
    return f"{'at most ' if bound else ''}{percent(standing).removeprefix('≤ ')}\u00a0%"


def _called(source: str) -> str:
    return TOGETHER if source == "merged" else source


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
