"""`nppr bound`: what holds for all noise of bounded density ratio, without a fit."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from nppr.errors import SpecError

if TYPE_CHECKING:
    from nppr.report import Report

__all__ = ["bound"]

Reference = Annotated[
    str, typer.Option("--reference", help="The reference noise: uniform, gaussian or laplace.")
]
DensityRatio = Annotated[
    str,
    typer.Option(
        "--density-ratio",
        help="Values of c, separated by commas: the density is at most c times the reference's.",
    ),
]


@grouped
def bound(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    reference: Reference = "uniform",
    density_ratio: DensityRatio = "1,2,5,10",
    measured: MeasureOptions = MeasureOptions(),  # noqa: B008
    pages: PageOptions = PageOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    as_json: options.AsJson = False,
) -> None:
    """Robustness is at least so much, under all noise of density at most c times a reference's.

    The noise may depend on the input or not. Writes the same run folder as assess.
    """
    if ":" in density_ratio:
        raise SpecError(f"`density-ratio` must hold numbers, got {density_ratio!r}. Example: 1,2,5")
    level = measured.confidence
    if level < 0.75:
        raise SpecError(f"`confidence` must be at least 0.75 here, got {level}. Example: 0.95")
    ratio = density_ratio.replace(" ", "").replace(",", "+")
    source = f"bound:reference={reference}:ratio={ratio}"
    report, path = assessed(model, data, budget, source, measured, FitOptions(), None, pages, run)
    for row in report.results:
        if row.error:
            console.show_error(f"source {row.source!r} failed: {row.error}")
    if as_json:
        sys.stdout.write(json.dumps(_entries(report), indent=2) + "\n")
        require_success(report)
        return
    if not run.quiet and _entries(report):
        console.show_bounds(_entries(report), reference, level)
    show(report, path, quiet=True, as_json=False)


def _entries(report: Report) -> list[dict[str, Any]]:
    """One entry for each c."""
    from nppr.report.rows import SPLITTING
    from nppr.types import Claim, Metric

    entries: dict[str, dict[str, Any]] = {}
    for row in report.results:
        if row.metric in (Metric.BOUND, Metric.INFIMUM) and row.value is not None:
            ratio = row.source.rpartition("c=")[2]
            entry = entries.setdefault(ratio, {"density_ratio": float(ratio), "draws": row.draws})
            if row.metric is Metric.INFIMUM:
                rare = row.method == SPLITTING
                entry["estimate_with_splitting" if rare else "estimate"] = row.value
            else:
                name = "test_set" if row.claim is Claim.TEST_SET else "population"
                entry[name] = row.value
    return list(entries.values())
