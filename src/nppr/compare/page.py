"""The page of a comparison: one self-contained HTML file, rendered from the comparison alone."""

from __future__ import annotations

from dataclasses import dataclass

from nppr.compare.schema import Compared, Comparison, Standing
from nppr.compare.tables import differences_table, values_table
from nppr.compare.wording import answer, legend, letter, percent, rule, share_range, titled
from nppr.report.page.shell import page_shell, rendered
from nppr.types import Metric

__all__ = ["Line", "Plot", "page_of"]

COLOURS = {Metric.AR: "c-ar", Metric.NPPR: "c-nppr", Metric.PR: "c-pr"}


def page_of(comparison: Comparison) -> str:
    """The text of `compare.html`; every name is escaped."""
    entries = comparison.entries
    title = f"Comparison of {len(entries)} classifiers or settings"
    if len(entries) == 1:
        title = f"{entries[0].name}, {len(entries[0].runs)} seeds"
    compared = any(result.differences for result in comparison.results)
    body = rendered(
        "compare.html.j2",
        package="nppr.compare",
        comparison=comparison,
        title=title,
        answer=answer(comparison),
        values=values_table(comparison, short=True),
        differences=differences_table(comparison) if compared else None,
        plots=[_plot(comparison, result) for result in comparison.results],
        rule=rule(comparison),
        data=", ".join(dict.fromkeys(entry.data for entry in entries)),
        budgets=", ".join(dict.fromkeys(entry.budget for entry in entries)),
        titles=[titled(comparison, at) for at in range(len(entries))],
        level=f"{100 * comparison.confidence:g} %",
    )
    return page_shell(title, body)


@dataclass(frozen=True)
class Line:
    """One entry in a figure; places are in % of the width."""

    letter: str
    error: str | None
    number: str = ""
    interval: str = ""
    mark: str = ""
    rank: str = ""
    said: str = ""
    at: str = ""
    low: str = ""
    width: str = ""


@dataclass(frozen=True)
class Plot:
    """The figure of one metric and source: a dot and a band for each entry on one axis."""

    metric: str
    source: str
    what: str
    colour: str
    lines: tuple[Line, ...]


def _plot(comparison: Comparison, result: Compared) -> Plot:
    what = legend(result.metric, result.source)
    ranks = [standing.rank for standing in result.standings]
    return Plot(
        metric=result.metric.value,
        source=result.source,
        what=what[0].upper() + what[1:],
        colour=COLOURS.get(result.metric, "c-other"),
        lines=tuple(
            _line(comparison, standing, tied=ranks.count(standing.rank) > 1)
            for standing in result.standings
        ),
    )


def _line(comparison: Comparison, standing: Standing, *, tied: bool) -> Line:
    if standing.value is None:
        return Line(letter(standing.entry), standing.error or "not measured")
    rank = f"rank {standing.rank}{', tied' if tied else ''}" if standing.rank else ""
    interval = low = width = ""
    if standing.low is not None and standing.high is not None:
        interval = share_range(standing.low, standing.high)
        low, width = _place(standing.low), _place(standing.high - standing.low)
    number = f"{percent(standing)} %"
    said = [f"{titled(comparison, standing.entry)}: {number}"]
    said += [f"interval {interval} %"] if interval else []
    return Line(
        letter=letter(standing.entry),
        error=None,
        number=number,
        interval=interval,
        mark="*" if standing.flags else "",
        rank=rank,
        said=", ".join([*said, *([rank] if rank else [])]),
        at=_place(standing.value),
        low=low,
        width=width,
    )


def _place(share: float) -> str:
    return f"{100 * min(1.0, max(0.0, share)):.3f}%"
