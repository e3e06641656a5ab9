"""`nppr spectrum`: NPPR against the floor rho."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from nppr import console
from nppr.cli import options
from nppr.cli.assess import assessed, require_success, show
from nppr.cli.groups import (
    BudgetOptions,
    DataOptions,
    FitOptions,
    MeasureOptions,
    ModelOptions,
    PageOptions,
    RunOptions,
    grouped,
)

if TYPE_CHECKING:
    from nppr.report import Report

__all__ = ["spectrum"]

FLOORS = "0,0.25,0.5,0.75,1"


@grouped
def spectrum(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    measured: MeasureOptions = MeasureOptions(),  # noqa: B008
    fit: FitOptions = FitOptions(),  # noqa: B008
    pages: PageOptions = PageOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    as_json: options.AsJson = False,
) -> None:
    """NPPR against the floor rho: from the paper's set (0) to Uniform noise (1).

    Writes the same run folder as assess. The default floors are 0,0.25,0.5,0.75,1.
    """
    report, path = assessed(
        model, data, budget, "nppr,uniform", measured, fit, None, pages, run, FLOORS
    )
    if as_json:
        sys.stdout.write(json.dumps(_entries(report), indent=2) + "\n")
        require_success(report)
        return
    if not run.quiet:
        console.show_spectrum(_entries(report))
    show(report, path, quiet=True, as_json=False)


def _entries(report: Report) -> list[dict[str, Any]]:
    """One entry a floor, smallest first."""
    from nppr.types import Metric

    entries = []
    for made in report.distributions:
        row = report.headline(made["source"], Metric.NPPR)
        if row is not None and "fit-seed" not in made["source"]:
            entries.append(
                {
                    "floor": made["family"]["floor"],
                    "value": row.value,
                    "low": row.low,
                    "high": row.high,
                    "realised_std": made["diagnostics"]["realised_std"],
                    "selected": made["fit"]["selected"],
                }
            )
    return sorted(entries, key=lambda entry: float(entry["floor"]))
