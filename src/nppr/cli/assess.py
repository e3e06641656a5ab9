"""`nppr assess` and `nppr evaluate`: measure, and print the table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nppr import console
from nppr.cli import options
from nppr.cli.groups import (
    BudgetOptions,
    DataOptions,
    FitOptions,
    MeasureOptions,
    ModelOptions,
    PageOptions,
    RunOptions,
    grouped,
    run_folder,
)
from nppr.errors import SpecError

if TYPE_CHECKING:
    from nppr.report import Report

__all__ = ["assess", "assessed", "evaluate", "require_success", "show"]


@grouped
def assess(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    sources: options.Sources = None,
    measured: MeasureOptions = MeasureOptions(),  # noqa: B008
    fit: FitOptions = FitOptions(),  # noqa: B008
    distribution: options.Distribution = None,
    only_merged: options.OnlyMerged = False,
    pages: PageOptions = PageOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    as_json: options.AsJson = False,
) -> None:
    """Measure a classifier under the worst noise found, fixed noise, attacks and corruptions.

    All sources meet the same inputs.

    Writes report.json, per_input.csv and the page report.html to the run folder and prints the results
    as a table.
    """
    report, path = assessed(
        model, data, budget, sources, measured, fit, distribution, pages, run,
        only_merged=only_merged,
    )  # fmt: skip
    show(report, path, quiet=run.quiet, as_json=as_json)


@grouped
def evaluate(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    distribution: options.Distribution = None,
    sources: options.Sources = None,
    measured: MeasureOptions = MeasureOptions(),  # noqa: B008
    pages: PageOptions = PageOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    as_json: options.AsJson = False,
) -> None:
    """Measure distributions that nppr fit has written, at this or another radius or classifier.

    Writes report.json, per_input.csv and the page report.html to the run folder and prints the results
    as a table.
    """
    if distribution is None:
        raise SpecError(
            "`distribution` must be given: the folder that nppr fit has written."
            " Example: --distribution runs/fit"
        )
    report, path = assessed(
        model, data, budget, sources or "", measured, FitOptions(), distribution, pages, run
    )
    show(report, path, quiet=run.quiet, as_json=as_json)


def assessed(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    sources: str | None,
    measured: MeasureOptions,
    fit: FitOptions,
    distribution: options.Distribution,
    pages: PageOptions,
    run: RunOptions,
    floors: str | None = None,
    *,
    only_merged: bool = False,
) -> tuple[Report, str]:
    """The report, and the path it was written to."""
    options.budget_text(budget.norm, budget.eps)
    for name in ("mean", "std"):
        options.numbers(name, getattr(model, name))
    work = (budget, sources, measured, fit, distribution, floors, only_merged)
    amounts = measured.settings()
    pages.kinds()
    folder = run_folder(run, model, data, *work)

    from nppr.assess import assess as assess_classifier
    from nppr.search.learned_noise import load_learned

    loaded = data.load(model.classes)
    classifier, featurer = model.load(loaded)
    stated = budget.parse()
    known = load_learned(distribution, stated, featurer) if distribution is not None else []
    if known and stated is None:
        stated = known[0].source.budget
    limit = data.fit_inputs or len(loaded.fit)
    with console.progress_bars(quiet=run.quiet) as (progress, on_fit):
        report = assess_classifier(
            classifier,
            loaded,
            budget=stated,
            sources=sources,
            fit=fit.settings(min(limit, len(loaded.fit)), floors),
            distributions=known,
            feature_model=featurer,
            **amounts,
            inputs=data.inputs,
            fit_inputs=data.fit_inputs,
            select_inputs=data.select_inputs,
            seed=run.seed,
            quantise=run.quantise,
            only_merged=only_merged,
            batch_size=run.batch_size,
            device=run.device,
            out=folder,
            resume=run.resume,
            overwrite=run.overwrite,
            progress=progress,
            on_fit=on_fit,
            on_plan=None if run.quiet else console.show_plan,
        )
    _render(pages, folder, quiet=run.quiet)
    return report, str(folder / "report.json")


def _render(pages: PageOptions, folder: Path, *, quiet: bool) -> None:
    """Write the page and the figures; failing at it never costs the run."""
    from nppr.distributed import world

    if not world().is_first:
        return
    try:
        written = pages.write(folder)
    except Exception as error:  # the numbers are safe in report.json
        console.show_error(f"the page could not be rendered: {error}. Try: nppr report {folder}")
        return
    if written and not quiet:
        console.err.print(f"page: {written[0]}", markup=False, soft_wrap=True)


def show(report: Report, path: str, *, quiet: bool, as_json: bool) -> None:
    """Print what was asked for; a source that failed makes the exit code 1."""
    if as_json:
        sys.stdout.write(report.to_json())
    elif quiet:
        sys.stdout.write(path + "\n")
    else:
        console.show_report(report, path)
    require_success(report)


def require_success(report: Report) -> None:
    """Exit with code 1 if a source failed, at any radius."""
    rows = [*report.results, *(row for at in report.radii for row in at.results)]
    if any(row.error and not row.flags for row in rows):
        raise typer.Exit(1)
