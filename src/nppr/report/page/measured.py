"""How it was measured: draws, seed, splits, calls, time, versions, and what each interval claims."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from nppr.report.page.numbers import Numbers
from nppr.report.page.shell import rendered
from nppr.report.schema import Report
from nppr.types import Claim

__all__ = ["STATEMENTS", "measured"]

STATEMENTS = {
    "clopper-pearson": "exact binomial interval over inputs: guaranteed",
    "normal": "normal approximation over inputs: tested for 400 inputs or more and means from 10 to"
    " 90 %, flagged outside",
    "bootstrap": "percentiles over resampled inputs: approximate, as normal",
    "empirical-bernstein": "guaranteed for any distribution and any number of inputs",
    "betting": "guaranteed for any distribution and any number of inputs",
    "paired-bootstrap": "percentiles of a ratio over resampled inputs: approximate, as normal",
    "hoeffding": "guaranteed; only the draws are random, the inputs are what they are",
    "draws + splitting": "normal approximation with the errors of draws and splitting; only the draws"
    " are random",
    "exact": "guaranteed; only the draws are random, the inputs are what they are",
}
"""What a method promises."""


def measured(report: Report, numbers: Numbers) -> Markup:
    """The section's body."""
    rows = [*report.results, *(row for at in report.radii for row in at.results)]
    claims = {
        claim.value: {
            row.method: STATEMENTS.get(row.method, "")
            for row in rows
            if row.claim is claim and row.method
        }
        for claim in Claim
    }
    environment = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value
        for name, value in report.environment.items()
    }
    return rendered(
        "measured.html.j2",
        n=numbers,
        report=report,
        claims={claim: methods for claim, methods in claims.items() if methods},
        environment=environment,
        reached=_reached(report),
        population=Claim.POPULATION.value,
    )


def _reached(report: Report) -> dict[str, Any] | None:
    """The last round of a wanted precision and the source with the widest interval."""
    found = report.precision
    if not found or not found["rounds"]:
        return None
    widths = found["widths"]
    widest = max(widths, key=lambda source: widths[source]["half_width"], default=None)
    return {"round": len(found["rounds"]) - 1, "widest": widest}
