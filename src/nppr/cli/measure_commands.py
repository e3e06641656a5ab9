"""`nppr assess`, `fit`, `evaluate`, `spectrum`, `bound` and `bracket`: learn, measure, print."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nppr import console
from nppr.cli.app import ExitCode, checked_specs, command
from nppr.errors import SpecError
from nppr.noise_sets import DEFAULT_SIZES, RATIO, split_spec
from nppr.options import (
    FLOOR_HELP,
    BracketOptions,
    FeatureModelOptions,
    FolderOptions,
    MeasureOptions,
    NoisyRunOptions,
    Numbers,
    Panel,
    SearchOptions,
    SourcesOptions,
    figure_formats,
    option,
    require_sources,
)
from nppr.progress import progress_bars
from nppr.specs import names_code

if TYPE_CHECKING:
    from nppr.report import Report, Table
    from nppr.search.learned_noise import LearnedNoise
    from nppr.sources import Source

NOT_IN_NAME = {
    "out", "resume", "overwrite", "quiet", "device", "batch_size", "anyway", "page", "figures",
    "as_json",
}  # fmt: skip
"""Options that change no number, and so not the name of the default folder."""


class AssessOptions(SourcesOptions, SearchOptions):
    """Options of `nppr assess`."""

    only_merged: bool = option(
        False,
        "Report AR over all sources together instead of for each attack; broken inputs are not attacked"
        " again.",
        Panel.STATISTICS,
    )


@command("""
    nppr assess
        the demo: a small network on scikit-learn's digits, about a minute
    nppr assess --sources gaussian,uniform:scale=0.5,pgd:steps=20 --draws 200
        choose the sources, their options and the number of draws
    nppr assess --model resnet20 --weights w.safetensors \\
                --data cifar-10-batches-py --eps 8/255
        a network of the zoo with your weights on CIFAR-10
    nppr assess --model my_model.py:make --data photos/ --resize 64 --eps 4/255
        your own model (this runs my_model.py) on a folder of images
    nppr assess --sources nppr,uniform --dependency input --floor 0,0.5
        the worst noise found that may depend on the input, and one that is
        half Uniform noise
    nppr assess --sources all --inputs 500 --eps 8/255
        the paper's table: noise, attacks, AutoAttack, corruptions, stress
    nppr assess --sources uniform,nppr --precision 0.01
        until every PR and NPPR is within ±1 percentage point
    nppr assess --draws 1000 --out runs/mine --resume
        continue an interrupted run: the same command with --resume
""")
def assess(options: AssessOptions) -> None:
    """Measure a classifier under the worst noise found, fixed noise, attacks and corruptions.

    All sources are measured on the same inputs. Writes report.json, per_input.csv and the page
    report.html to the run folder and prints the results as a table.
    """
    _show(options, *_measure(options, options.sources, options, options.distribution))


class FitOptions(NoisyRunOptions, FolderOptions, SearchOptions, FeatureModelOptions):
    """Options of `nppr fit`."""

    inputs: int | None = option(
        None,
        "At most this many inputs of the evaluate split, on which nothing is fitted.",
        Panel.ADVANCED,
    )


@command("""
    nppr fit --dependency label --out runs/label
        learn noise that may depend on the label; measure it with nppr evaluate
""")
def fit(options: FitOptions) -> None:
    """Learn the worst admissible noise for a classifier, on the fit and select splits.

    Writes each distribution to the run folder, as distributions/NAME.safetensors. Measure them with
    nppr evaluate.
    """
    settings = options.run_settings()
    folder = options.out or _default_folder(options, "fit")
    _note_default_data(options)

    from nppr.assessment.assess import learn
    from nppr.assessment.load import load_images, load_models
    from nppr.assessment.run_folder import write_specs

    loaded = load_images(options, settings, options.classes)
    classifier, feature_model = load_models(options, loaded, options)
    with progress_bars(quiet=options.quiet) as (_, on_search):
        found = learn(
            classifier,
            loaded,
            budget=options.budget(),
            search=options.search_settings(len(loaded.fit)),
            feature_model=feature_model,
            fit_inputs=settings.fit_inputs,
            select_inputs=settings.select_inputs,
            seed=settings.seed,
            quantise=settings.quantise,
            batch_size=options.batch_size,
            device=options.device,
            out=folder,
            resume=options.resume,
            overwrite=options.overwrite,
            on_search=on_search,
        )
    write_specs(folder, {name: getattr(options, name) for name in FITTED_SPECS})
    if not options.quiet:
        console.show_learned(found, folder)
    console.print_line(str(folder / "distributions"))


@command("""
    nppr fit --dependency label --out runs/label
    nppr evaluate --distribution runs/label --eps 0.05
        learn the noise once, measure it at another radius
    nppr evaluate --distribution runs/label --rare --rare-calls 500000
        failures rarer than one in the number of draws
""")
def evaluate(options: SourcesOptions) -> None:
    """Measure noise written by nppr fit, also at another radius or on another classifier.

    Writes report.json, per_input.csv and the page report.html to the run folder and prints the results
    as a table. The radius is that of the fit unless --eps is given. --sources adds others; by default
    there are none.
    """
    if options.distribution is None:
        raise SpecError(
            "`distribution` must be given: the folder written by nppr fit."
            " Example: --distribution runs/fit"
        )
    options = _with_fitted_specs(options, options.distribution)
    _show(options, *_measure(options, options.sources or "", None, options.distribution))


class SpectrumOptions(MeasureOptions, SearchOptions, FeatureModelOptions):
    """Options of `nppr spectrum`."""

    floor: Numbers = option((0, 0.25, 0.5, 0.75, 1), FLOOR_HELP, Panel.NOISE)


@command("""
    nppr spectrum --dependency independent
        from attack-like to noise-like: NPPR against the least randomness rho
""")
def spectrum(options: SpectrumOptions) -> None:
    """Measure NPPR against the floor rho: from the paper's set (0) to Uniform noise (1).

    Writes the same run folder as assess.
    """
    report, path = _measure(options, "nppr,uniform", options)
    from nppr.report.results_table import spectrum_table

    _show(
        options, report, path, spectrum_table(report),
        "NPPR is an upper bound that a search found: the interval is conditional on the noise found,"
        " and only its upper end applies to the worst noise.",
    )  # fmt: skip


class BoundOptions(MeasureOptions, FeatureModelOptions):
    """Options of `nppr bound`."""

    noise_set: str = option(
        RATIO,
        "The set of noise, KIND or KIND:SIZE,SIZE: ratio (density at most c times the reference's),"
        " contaminated (the same but for a fraction d of its mass), tv, chi2, kl, hellinger (distance"
        " or divergence from the reference).",
        flag="--set",
    )
    reference: str = option("uniform", "The reference noise: uniform, gaussian or laplace.")
    distribution: Path | None = option(
        None, "Noise learned by nppr fit as the reference: its file, or a folder of such files."
    )
    density_ratio: str = option(
        DEFAULT_SIZES[RATIO].replace("+", ","),
        "Values of c, separated by commas: the density is at most c times that of the reference."
        " Default for contaminated: 2.",
    )
    patterns: int = option(
        1000,
        "Patterns shared by all inputs, for the sharper bound on noise that does not see the input;"
        " 0 leaves it out.",
    )
    at_least: float | None = option(
        None, "Print the largest set for which at least this is still shown to hold, such as 0.95."
    )


@command("""
    nppr bound --reference uniform --density-ratio 1,2,5,10
        lower bounds under all noise of density up to c times Uniform noise
    nppr bound --set tv:0.01,0.05
        the same for noise within 1 and 5 % of it in total variation
    nppr bound --set tv --at-least 0.95
        how far may the noise move while 95 % is still shown to hold?
""")
def bound(options: BoundOptions) -> None:
    """Bound robustness from below under all noise of a set around a reference noise.

    Once for noise that may see the input, once for noise that does not. Writes the same run folder as
    assess.
    """
    ratio, confidence, least = options.density_ratio, options.confidence, options.at_least
    kind, sizes = split_spec(options.noise_set)
    if ":" in ratio:
        raise SpecError(f"`density-ratio` must hold numbers, got {ratio!r}. Example: 1,2,5")
    if confidence < 0.75:
        raise SpecError(f"`confidence` must be at least 0.75 here, got {confidence}. Example: 0.95")
    if least is not None and not 0 < least < 1:
        raise SpecError(f"`at-least` must lie in (0, 1), got {least:g}. Example: 0.95")
    if kind == RATIO and sizes is not None:
        ratio, sizes = sizes, None
    facts = {
        "set": kind,
        "ratio": ratio.replace(" ", "").replace(",", "+"),
        **({} if sizes is None else {"size": sizes}),
        **({} if least is None else {"least": least}),
    }
    spec = ":".join(
        [f"bound:reference={options.reference}", *(f"{k}={v}" for k, v in facts.items())]
    )
    shared = [f"{spec}:patterns={options.patterns}"] if options.patterns else []
    sources = ",".join([spec, *shared])
    require_sources(sources, options.budget())

    def around(learned: LearnedNoise) -> list[Source]:
        """The bounds around learned noise."""
        from nppr.sources import Bound

        noise, reference = learned.source, learned.source.name
        own = Bound(noise.budget, reference, given=noise, **facts)  # type: ignore[arg-type]
        if options.patterns and own.sees_nothing:
            return [own, replace(own, patterns=options.patterns)]
        if options.patterns and not options.quiet:
            console.note(f"{reference} sees the input: no bound for noise that does not see it")
        return [own]

    report, path = _measure(options, sources, distribution=options.distribution, around=around)
    for row in report.results:
        if row.error:
            console.show_error(f"source {row.name!r} failed: {row.error}")
    from nppr.report.bounds_table import bounds_note, bounds_table, sizes_table

    table = sizes_table(report) if least else bounds_table(report)
    _show(options, report, path, table, bounds_note(report, sizes=least is not None))


@command("""
    nppr bracket --eps 0.25 --sigma 0.25 --weights noisy.safetensors
        at least and at most, under Gaussian noise with the worst offset up to
        0.25, of a network trained with nppr train --method gaussian --sigma 0.25
    nppr bracket --eps 0.25 --sigma 0.25 --radii 0.0625,0.125,0.5 --figures png
        the same for shorter and longer offsets, and the picture
""")
def bracket(options: BracketOptions) -> None:
    """Bracket robustness under Gaussian noise of sigma plus the worst offset of l2 length up to R.

    The lower end holds for every such offset, input-dependent or not, by Neyman and Pearson; the upper
    end is that of the worst offset found for each input on its own. Writes the same run folder as
    assess.
    """
    report, path = _measure(options, [*options.sources()])
    for row in report.results:
        if row.error:
            console.show_error(f"source {row.name!r} failed: {row.error}")
    from nppr.report.brackets import bracket_scope, bracket_sentence, bracket_table, quoted_bracket
    from nppr.report.numbers import Numbers as ReportNumbers

    found, numbers = quoted_bracket(report), ReportNumbers(report)
    words = [each(numbers, found) for each in (bracket_sentence, bracket_scope) if found]
    _show(options, report, path, bracket_table(report), " ".join(words))


FITTED_SPECS = (
    "model", "weights", "mean", "std", "classes", "stem", "features", "data", "split", "class_order",
    "resize", "range",
)  # fmt: skip
"""Options of `nppr fit` that `nppr evaluate` takes over where neither model nor data are given."""


def _with_fitted_specs(options: SourcesOptions, distribution: Path) -> SourcesOptions:
    """The options with the model and the data of the fit, unless one of them was typed."""
    if options.is_typed("model") or options.is_typed("data"):
        return options
    from nppr.assessment.run_folder import read_specs

    held = read_specs(distribution)
    model = held.get("model")
    if model is not None and names_code(str(model)):
        raise SpecError(
            f"`model` must be given: this noise was learned for {str(model)!r}, Python code, which"
            f" runs only where you name it. Add --model {model} --data {held.get('data')}"
        )
    known = {name: held[name] for name in FITTED_SPECS if held.get(name) is not None}
    taken = {name: value for name, value in known.items() if not options.is_typed(name)}
    if taken and not options.quiet:
        console.note(f"as in the fit: --model {taken.get('model')} --data {taken.get('data')}")
    return checked_specs(type(options), {**options.model_dump(), **taken})


def _note_default_data(options: NoisyRunOptions) -> None:
    """Say that a model of one's own meets the digits of the demo, before anything is loaded."""
    default = type(options).model_fields["model"].default
    if options.model != default and not options.is_typed("data") and not options.quiet:
        console.note(
            f"--data is not given: {options.model} is assessed on {options.data}, images of"
            " 1 x 8 x 8 in 10 classes"
        )


def _default_folder(options: NoisyRunOptions, *more: object) -> Path:
    """A folder under runs/ that belongs to these options alone."""
    determining = {**options.model_dump(exclude=NOT_IN_NAME), **asdict(options.run_settings())}
    return named_folder(options.model, options.data, (determining, *more))


def named_folder(first: str, second: str, settings: object) -> Path:
    """A folder under runs/ with two readable names and a hash of the settings."""
    digest = hashlib.sha256(repr(settings).encode()).hexdigest()[:8]
    names = (Path(name).stem or name for name in (first, second))
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(names))
    return Path("runs") / f"{readable}-{digest}"


def _measure(
    options: MeasureOptions,
    sources: str | list[str | Source] | None,
    search: SearchOptions | None = None,
    distribution: Path | None = None,
    around: Callable[[LearnedNoise], list[Source]] | None = None,
) -> tuple[Report, Path]:
    """Measure these sources and write the run folder: the report, and its path.

    `around` makes the sources from the learned noise of the widest set, where a distribution is given.
    """
    settings = options.run_settings()
    folder = options.out or _default_folder(options, sources)
    _note_default_data(options)

    from nppr.assessment.assess import assess as assess_model
    from nppr.assessment.load import load_images, load_models
    from nppr.assessment.run_folder import vanished, write_specs
    from nppr.data import with_slices
    from nppr.search.learned_noise import load_learned

    loaded = load_images(options, settings, options.classes, evaluate_all=options.evaluate_all)
    loaded = with_slices(loaded, options.slices)
    other = options if isinstance(options, FeatureModelOptions) else None
    classifier, feature_model = load_models(options, loaded, other)
    budget = options.budget()
    known = load_learned(distribution, budget, feature_model) if distribution is not None else []
    chosen = sources
    if known and around is not None:
        known = [min(known, key=lambda each: each.width)]
        chosen = [*around(known[0])]
    with progress_bars(quiet=options.quiet) as (progress, on_search):
        report = assess_model(
            classifier,
            loaded,
            budget=budget or (known[0].source.budget if known else None),
            sources=chosen,
            search=search.search_settings(len(loaded.fit)) if search else None,
            distributions=known,
            feature_model=feature_model,
            batch_size=options.batch_size,
            anyway=options.anyway,
            device=options.device,
            out=folder,
            resume=options.resume,
            overwrite=options.overwrite,
            evaluate_all=options.evaluate_all,
            progress=progress or False,
            on_search=on_search,
            on_plan=None if options.quiet else console.show_plan,
            **{**vars(settings), "draws": options.draws},  # its default needs the data
        )
    write_specs(folder, {name: getattr(options, name) for name in FITTED_SPECS})
    path = folder / "report.json"
    if not path.exists():
        raise vanished(folder)
    return report, path


def _render(folder: Path, options: MeasureOptions) -> bool:
    """Write the page and the figures; whether that worked. A failure never costs the numbers."""
    from nppr.records import one_line
    from nppr.report.run_files import read_run, write_rendered

    formats = figure_formats(options.figures)
    if not (options.page or formats):
        return True
    try:
        written = write_rendered(read_run(folder), page=options.page, figures=formats)
    except Exception as error:  # the numbers are safe in report.json
        reason = one_line(error).rstrip(".")
        console.show_error(f"the page could not be rendered: {reason}. Try: nppr report {folder}")
        return False
    if written and not options.quiet:
        console.note(f"page: {written[0]}")
    return True


def _show(
    options: MeasureOptions, report: Report, path: Path, table: Table | None = None, note: str = ""
) -> None:
    """Render and print the results, or one table of them.

    The exit code is 1 if a source failed or the page was not written.
    """
    from nppr.report.results_table import trust_lines

    rendered = _render(path.parent, options)
    if options.as_json:
        sys.stdout.write(table.to_json() if table else report.to_json())
    elif table is None and not options.quiet:
        console.show_report(report, path)
    else:
        if table and table.rows and not options.quiet:
            console.out.print(table.to_rich(console.out.width))
            console.out.print(note, markup=False, end="\n" if note else "")
            for line in trust_lines(report):
                console.out.print(line, markup=False)
        sys.stdout.write(f"{path}\n")
    failed = any(row.error and not row.flags for row in (*report.results, *report.other_radii))
    if failed or not rendered:
        raise ExitCode(1)
