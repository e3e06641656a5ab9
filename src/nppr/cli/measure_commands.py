"""`nppr assess`, `evaluate`, `spectrum`, `bound` and `fit`: learn, measure, print."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nppr import console
from nppr.cli.option_flags import grouped
from nppr.errors import SpecError
from nppr.options import (
    BudgetOptions,
    DataOptions,
    DistributionOptions,
    FeatureModelOptions,
    JsonOptions,
    MeasureOptions,
    ModelOptions,
    OnlyMergedOptions,
    PageOptions,
    RunOptions,
    SearchOptions,
    SourcesOptions,
    check_sources,
    run_settings,
)

if TYPE_CHECKING:
    from nppr.report import Report, Table

SPECTRUM_FLOORS = (0.0, 0.25, 0.5, 0.75, 1.0)

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
def assess(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    sources: SourcesOptions,
    measured: MeasureOptions,
    run: RunOptions,
    printed: JsonOptions,
    search: SearchOptions,
    features: FeatureModelOptions,
    distribution: DistributionOptions,
    merged: OnlyMergedOptions,
    pages: PageOptions,
) -> None:
    """Measure a classifier under the worst noise found, fixed noise, attacks and corruptions.

    All sources are measured on the same inputs. Writes report.json, per_input.csv and the page
    report.html to the run folder and prints the results as a table.
    """
    report, path = _assessed(
        model, data, budget, run, sources.sources, measured, search, features, pages,
        distribution=distribution.distribution, only_merged=merged.only_merged,
    )  # fmt: skip
    _show(report, path, quiet=run.quiet, as_json=printed.as_json)


@grouped
def evaluate(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    distribution: DistributionOptions,
    sources: SourcesOptions,
    measured: MeasureOptions,
    run: RunOptions,
    printed: JsonOptions,
    features: FeatureModelOptions,
    pages: PageOptions,
) -> None:
    """Measure noise that nppr fit has written, at this or another radius or on another classifier.

    Writes report.json, per_input.csv and the page report.html to the run folder and prints the results
    as a table.
    """
    if distribution.distribution is None:
        raise SpecError(
            "`distribution` must be given: the folder that nppr fit has written."
            " Example: --distribution runs/fit"
        )
    report, path = _assessed(
        model, data, budget, run, sources.sources or "", measured, None, features, pages,
        distribution=distribution.distribution,
    )  # fmt: skip
    _show(report, path, quiet=run.quiet, as_json=printed.as_json)


@grouped
def spectrum(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    measured: MeasureOptions,
    run: RunOptions,
    printed: JsonOptions,
    search: SearchOptions,
    features: FeatureModelOptions,
    pages: PageOptions,
) -> None:
    """NPPR against the floor rho: from the paper's set (0) to Uniform noise (1).

    Writes the same run folder as assess. The default floors are 0,0.25,0.5,0.75,1.
    """
    report, path = _assessed(
        model, data, budget, run, "nppr,uniform", measured, search, features, pages,
        floors=SPECTRUM_FLOORS,
    )  # fmt: skip
    from nppr.report.results_table import spectrum_table

    _show_table(report, path, spectrum_table(report), printed, run)


@grouped
def bound(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    measured: MeasureOptions,
    run: RunOptions,
    printed: JsonOptions,
    pages: PageOptions,
    reference: Reference = "uniform",
    density_ratio: DensityRatio = "1,2,5,10",
) -> None:
    """A lower bound on robustness under all noise of density at most c times a reference's.

    The noise may depend on the input or not. Writes the same run folder as assess.
    """
    if ":" in density_ratio:
        raise SpecError(f"`density-ratio` must hold numbers, got {density_ratio!r}. Example: 1,2,5")
    if measured.confidence < 0.75:
        raise SpecError(
            f"`confidence` must be at least 0.75 here, got {measured.confidence}. Example: 0.95"
        )
    ratio = density_ratio.replace(" ", "").replace(",", "+")
    source = f"bound:reference={reference}:ratio={ratio}"
    check_sources(source)
    report, path = _assessed(
        model, data, budget, run, source, measured, None, FeatureModelOptions(), pages
    )
    for row in report.results:
        if row.error:
            console.show_error(f"source {row.name!r} failed: {row.error}")
    from nppr.report.results_table import bounds_table

    _show_table(
        report, path, bounds_table(report), printed, run,
        f"Robustness under any noise, input-dependent or not, whose density is at most c times that of"
        f" {reference} noise; the bounds of a column hold together, {100 * measured.confidence:g} %"
        " confidence.",
    )  # fmt: skip


@grouped
def fit(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    run: RunOptions,
    search: SearchOptions,
    features: FeatureModelOptions,
) -> None:
    """Learn the worst admissible noise of a classifier, on other inputs than those it is measured on.

    Writes each distribution to the run folder, as distributions/NAME.safetensors. Measure them with
    nppr evaluate.
    """
    settings = run_settings(data, run)
    folder = run.out or default_folder(model.model, data.data, (model, data, "fit", budget, search))

    from nppr.assessment.assess import learn
    from nppr.assessment.load import load_images, load_models

    loaded = load_images(data, settings, model.classes)
    classifier, feature_model = load_models(model, loaded, features)
    with console.progress_bars(quiet=run.quiet) as (_, on_search):
        found = learn(
            classifier,
            loaded,
            budget=budget.budget(),
            search=search.settings(len(loaded.fit)),
            feature_model=feature_model,
            fit_inputs=settings.fit_inputs,
            select_inputs=settings.select_inputs,
            seed=settings.seed,
            quantise=settings.quantise,
            batch_size=run.batch_size,
            device=run.device,
            out=folder,
            resume=run.resume,
            overwrite=run.overwrite,
            on_search=on_search,
        )
    if not run.quiet:
        console.show_learned(found)
    console.print_line(str(folder / "distributions"))


def default_folder(model: str, data: str, settings: object) -> Path:
    """A folder under runs/ that belongs to these settings alone."""
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    names = (Path(name).stem or name for name in (model, data))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(names))
    return Path("runs") / f"{readable}-{digest}"


def _assessed(
    model: ModelOptions,
    data: DataOptions,
    budget: BudgetOptions,
    run: RunOptions,
    sources: str | None,
    measured: MeasureOptions,
    search: SearchOptions | None,
    features: FeatureModelOptions,
    pages: PageOptions,
    *,
    distribution: Path | None = None,
    floors: tuple[float, ...] | None = None,
    only_merged: bool = False,
) -> tuple[Report, Path]:
    """The report, and the path it was written to."""
    settings = run_settings(data, run, measured, only_merged=only_merged)
    kinds = pages.formats()
    asked = (model, data, budget, settings, sources, search, features, distribution, floors)
    folder = run.out or default_folder(model.model, data.data, asked)

    from nppr.assessment.assess import assess as assess_model
    from nppr.assessment.load import load_images, load_models
    from nppr.search.learned_noise import load_learned

    loaded = load_images(data, settings, model.classes)
    classifier, feature_model = load_models(model, loaded, features)
    stated = budget.budget()
    known = load_learned(distribution, stated, feature_model) if distribution is not None else []
    if known and stated is None:
        stated = known[0].source.budget
    with console.progress_bars(quiet=run.quiet) as (progress, on_search):
        report = assess_model(
            classifier,
            loaded,
            budget=stated,
            sources=sources,
            search=search.settings(len(loaded.fit), floors) if search else None,
            distributions=known,
            feature_model=feature_model,
            batch_size=run.batch_size,
            device=run.device,
            out=folder,
            resume=run.resume,
            overwrite=run.overwrite,
            progress=progress,
            on_search=on_search,
            on_plan=None if run.quiet else console.show_plan,
            **vars(settings),
        )
    if pages.page or kinds:
        _render(folder, page=pages.page, kinds=kinds, quiet=run.quiet)
    return report, folder / "report.json"


def _render(folder: Path, *, page: bool, kinds: tuple[str, ...], quiet: bool) -> None:
    """Write the page and the figures; a failure here never costs the run."""
    from nppr.ranks import world
    from nppr.report.run_files import read_run, write_rendered

    if not world().is_first:
        return
    try:
        written = write_rendered(read_run(folder), page=page, figures=kinds)
    except Exception as error:  # the numbers are safe in report.json
        console.show_error(f"the page could not be rendered: {error}. Try: nppr report {folder}")
        return
    if written and not quiet:
        console.note(f"page: {written[0]}")


def _show_table(
    report: Report, path: Path, table: Table, printed: JsonOptions, run: RunOptions, note: str = ""
) -> None:
    """Print one table of a report instead of all its results."""
    if printed.as_json:
        sys.stdout.write(table.to_json())
    else:
        if not run.quiet and table.rows:
            console.out.print(table.to_rich(console.out.width))
            console.out.print(note, markup=False, end="\n" if note else "")
        sys.stdout.write(f"{path}\n")
    _require_success(report)


def _show(report: Report, path: Path, *, quiet: bool, as_json: bool) -> None:
    """Print what was asked for; a source that failed makes the exit code 1."""
    if as_json:
        sys.stdout.write(report.to_json())
    elif quiet:
        sys.stdout.write(f"{path}\n")
    else:
        console.show_report(report, path)
    _require_success(report)


def _require_success(report: Report) -> None:
    if any(row.error and not row.flags for row in (*report.results, *report.other_radii)):
        raise typer.Exit(1)


EXAMPLES = {
    "assess": """
  nppr assess
      the demo: a small network on scikit-learn's digits, about a minute
  nppr assess --sources gaussian,uniform:scale=0.5,pgd:steps=20 --eps 8/255 --draws 200
      choose the sources, their options, the budget and the draws
  nppr assess --model resnet20 --weights w.safetensors --data cifar-10-batches-py --eps 8/255
      a network of the zoo with your weights on CIFAR-10
  nppr assess --model my_model.py:make --data photos/ --resize 64 --eps 4/255
      your own model (this runs my_model.py) on a folder of images
  nppr assess --sources nppr,uniform --dependency input --floor 0,0.5 --eps 8/255
      the worst noise found that may depend on the input, and one that is half Uniform noise
  nppr assess --sources all --inputs 500 --eps 8/255
      the paper's table: noise, attacks, AutoAttack, corruptions, stress
  nppr assess --sources uniform,nppr --precision 0.01
      add inputs, then draws, until every PR and NPPR is within ±1 percentage point
  nppr assess --draws 1000 --out runs/mine --resume
      continue an interrupted run: the same command with --resume""",
    "evaluate": """
  nppr fit --dependency label --out runs/label
  nppr evaluate --distribution runs/label --eps 0.05
      learn the noise once, measure it again at another radius or on another classifier
  nppr evaluate --distribution runs/label --rare --rare-calls 500000
      failures rarer than one in the number of draws, by multilevel splitting""",
    "spectrum": """
  nppr spectrum --dependency independent
      from attack-like to noise-like: NPPR against the least randomness rho""",
    "bound": """
  nppr bound --reference uniform --density-ratio 1,2,5,10
      robustness at least, under all noise of density up to c times that of Uniform noise""",
    "fit": """
  nppr fit --dependency label --out runs/label
      learn noise that may depend on the label; measure it with nppr evaluate""",
}
