"""The learned distribution: what was found, how random it is, how it was searched for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from nppr.report.page.figures import PageFigure
from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.schema import Report
from nppr.types import Metric

__all__ = ["FACTS", "learned"]

FACTS = {
    "realised_std": ("decimal", "realised standard deviation of the noise / radius"),
    "share_at_edge": ("percent", "share of the noise at the edge of the budget, %"),
    "scale": ("decimal", "learned scale s"),
    "floor": ("plain", "floor rho"),
    "entropy_ratio": ("decimal", "entropy of the weights / largest possible"),
    "effective_components": ("decimal", "effective components"),
    "max_weight": ("decimal", "largest weight"),
}
"""Diagnostics that are shown: how they are printed, and what they are."""


def learned(report: Report, numbers: Numbers, figures: Sequence[PageFigure]) -> Markup:
    """The section's body."""
    return rendered(
        "learned.html.j2",
        n=numbers,
        report=report,
        made=[_described(report, i, made) for i, made in enumerate(report.distributions)],
        facts=FACTS,
        figures=figures,
    )


def _described(report: Report, place: int, made: dict[str, Any]) -> dict[str, Any]:
    """One learned source: its place in the report and the facts that are there."""
    return {
        "place": place,
        "source": made["source"],
        "family": made["family"],
        "fit": made["fit"],
        "row": report.headline(made["source"], Metric.NPPR),
        "facts": [name for name in FACTS if made["diagnostics"].get(name) is not None],
        "stages": list(enumerate(made["fit"].get("stages", []))),
        "seeds": made.get("fit_seeds"),
    }
