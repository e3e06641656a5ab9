"""`nppr assess`, `fit`, `evaluate`, `spectrum`, `bound` and `bracket`: learn, measure, print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nppr.cli import console
from nppr.cli.app import ExitCode, name_folder, require_specs
from nppr.cli.commands import (
    AssessOptions,
    BoundOptions,
    BracketOptions,
    FitOptions,
    MeasureOptions,
    SourcesOptions,
    SpectrumOptions,
)
from nppr.core.radius import parse_radius
from nppr.errors import SpecError
from nppr.formats import names_code
from nppr.report import Report, Table
from nppr.report.bounds_table import bounds_note, bounds_table, sizes_table
from nppr.report.brackets import bracket_scope, bracket_sentence, bracket_table, quoted_bracket
from nppr.report.printed_numbers import Numbers
from nppr.report.results_table import notes_of, spectrum_table, terminal_tables, trust_lines
from nppr.report.run_files import RunFiles, write_rendered
from nppr.run.assess import assess_resolved, learn_resolved
from nppr.run.progress import Plan, progress_bars
from nppr.run.resolve import Resolved, read_budget, require_sources, resolve
from nppr.run.run_folder import read_specs, vanished, write_specs
from nppr.search.learned_noise import LearnedNoise, load_learned
from nppr.settings import Measure, ModelSettings, Search
from nppr.source_names import OFFSET_CALLS
from nppr.sources import Bound, Source
from nppr.sources.gaussian_offset import make_offset_sources
from nppr.statistics.noise_sets import RATIO, split_spec
from nppr.system.records import shorten_error

NOT_IN_NAME = {"run", "quiet", "page", "figures", "as_json"}
"""Options that change no number, and so do not change the name of the default folder."""


def execute_assess(options: AssessOptions) -> None:
    """Run `nppr assess`."""
    require_sources(options.sources, read_budget(options.budget))
    _show(options, *_measure(options, options.sources, options.search, options.distribution))


def execute_fit(options: FitOptions) -> None:
    """Run `nppr fit`."""
    folder = options.run.out or _default_folder(options, "fit")
    resolved = _resolve(options, options.measure)
    with progress_bars(quiet=options.quiet) as progress:
        found = learn_resolved(
            resolved,
            options.measure,
            search=options.search,
            run=options.run.with_(out=folder),
            progress=progress or False,
        )
    write_specs(folder, _fitted_specs(options))
    if not options.quiet:
        for each in found:
            made, search = each.record, each.record.search
            chosen = "" if search.select_value is None else f"chosen: {search.selected}, "
            std = f"realised std {made.diagnostics.realised_std:.3f} of the radius"
            calls = f"{search.fit_calls:,} calls to fit, {search.forward_calls:,} to choose"
            console.print_line(f"{made.name}: {chosen}{std}, {calls}")
        console.print_line(f"Measure with: nppr evaluate --distribution {folder}")
    console.print_line(str(folder / "distributions"))


def execute_evaluate(options: SourcesOptions) -> None:
    """Run `nppr evaluate`."""
    if options.distribution is None:
        raise SpecError(
            "`distribution` must be given: the folder written by nppr fit."
            " Example: --distribution runs/fit"
        )
    require_sources(options.sources, read_budget(options.budget))
    options = _with_fitted_specs(options, options.distribution)
    _show(options, *_measure(options, options.sources or "", None, options.distribution))


def execute_spectrum(options: SpectrumOptions) -> None:
    """Run `nppr spectrum`."""
    report, path = _measure(options, "nppr,uniform", options.search)
    _show(
        options, report, path, spectrum_table(report),
        "NPPR is an upper bound that a search found: the interval is conditional on the noise found,"
        " and only its upper end applies to the worst noise.",
    )  # fmt: skip


def execute_bound(options: BoundOptions) -> None:
    """Run `nppr bound`."""
    ratio, confidence = options.density_ratio, options.measure.confidence
    least = options.at_least
    kind, sizes = split_spec(options.noise_set)
    if ratio is not None and ":" in ratio:
        raise SpecError(f"`density-ratio` must hold numbers, got {ratio!r}. Example: 1,2,5")
    if confidence < 0.75:
        raise SpecError(f"`confidence` must be at least 0.75 here, got {confidence}. Example: 0.95")
    if least is not None and not 0 < least < 1:
        raise SpecError(f"`at-least` must lie in (0, 1), got {least:g}. Example: 0.95")
    if kind == RATIO and sizes is not None:
        ratio, sizes = sizes, None
    ratio = ratio and ratio.replace(" ", "").replace(",", "+")
    asked = {"set": kind, "ratio": ratio, "size": sizes, "least": least}
    facts = {name: value for name, value in asked.items() if value is not None}
    parts = (f"{name}={value}" for name, value in facts.items())
    sources = spec = ":".join([f"bound:reference={options.reference}", *parts])
    if options.patterns:
        sources += f",{spec}:patterns={options.patterns}"
    require_sources(sources, read_budget(options.budget))

    def around(learned: LearnedNoise) -> list[Source]:
        """Return the bounds around learned noise."""
        noise, reference = learned.source, learned.source.name
        own = Bound(noise.budget, reference, given=noise, **facts)  # type: ignore[arg-type]
        if options.patterns and own.sees_nothing:
            return [own, replace(own, patterns=options.patterns)]
        if options.patterns and not options.quiet:
            console.note(f"{reference} sees the input: no bound for noise that does not see it")
        return [own]

    report, path = _measure(options, sources, distribution=options.distribution, around=around)
    table = sizes_table(report) if least else bounds_table(report)
    _show(options, report, path, table, bounds_note(report, sizes=least is not None))


def execute_bracket(options: BracketOptions) -> None:
    """Run `nppr bracket`."""
    written = {parse_radius(text) for text in (options.budget.eps or "", *options.measure.radii)}
    calls = OFFSET_CALLS if options.search_calls is None else options.search_calls
    sources = make_offset_sources(options.sigma or 0.0, sorted(written), calls)
    own = options.model_copy(update={"measure": options.measure.with_(radii=())})
    report, path = _measure(own, [*sources])
    found, numbers = quoted_bracket(report), Numbers(report)
    words = [each(numbers, found) for each in (bracket_sentence, bracket_scope) if found]
    _show(options, report, path, bracket_table(report), " ".join(words))


def _fitted_specs(options: MeasureOptions | FitOptions) -> dict[str, Any]:
    """Return the settings that `nppr evaluate` takes over if it is given neither model nor data."""
    data = options.data.model_dump(exclude={"slices"})
    return {**options.model.model_dump(exclude={"feature_model", "feature_weights"}), **data}


def _with_fitted_specs(options: SourcesOptions, distribution: Path) -> SourcesOptions:
    """Return the options with the model and the data of the fit, unless one of them was typed."""
    if options.model.is_typed("model") or options.data.is_typed("data"):
        return options
    held = read_specs(distribution)
    model = held.get("model")
    if model is not None and names_code(str(model)):
        raise SpecError(
            f"`model` must be given: this noise was learned for {str(model)!r}, Python code, which"
            f" runs only where you name it. Add --model {model} --data {held.get('data')}"
        )
    known = {name: value for name, value in held.items() if value is not None}
    changed = {}
    for name, group in (("model", options.model), ("data", options.data)):
        taken = {
            key: value
            for key, value in known.items()
            if key in type(group).model_fields and not group.is_typed(key)
        }
        require_specs(taken)
        changed[name] = group.with_(**taken)
    if known and not options.quiet:
        console.note(f"as in the fit: --model {model} --data {held.get('data')}")
    return options.model_copy(update=changed)


def _default_folder(options: MeasureOptions | FitOptions, *more: object) -> Path:
    """Return a folder under runs/ that belongs to these options alone."""
    determining = options.model_dump(exclude=NOT_IN_NAME)
    return name_folder(options.model.model, options.data.data, (determining, *more))


def _measure(
    options: MeasureOptions,
    sources: str | Sequence[str | Source] | None,
    search: Search | None = None,
    distribution: Path | None = None,
    around: Callable[[LearnedNoise], list[Source]] | None = None,
) -> tuple[Report, Path]:
    """Measure these sources and write the run folder; return the report, and its path.

    `around` makes the sources from the learned noise of the widest set, if a distribution is given.
    """
    measure = options.measured
    folder = options.run.out or _default_folder(options, sources)
    resolved = _resolve(options, measure)
    known = []
    if distribution is not None:
        known = load_learned(distribution, resolved.budget, resolved.feature_model)
        resolved = replace(resolved, budget=resolved.budget or known[0].source.budget)
    chosen = sources
    if known and around is not None:
        known = [min(known, key=lambda each: each.width)]
        chosen = [*around(known[0])]
    with progress_bars(quiet=options.quiet, show_plan=_show_plan) as progress:
        report = assess_resolved(
            resolved,
            measure,
            sources=chosen,
            search=search,
            run=options.run.with_(out=folder),
            distributions=known,
            progress=progress or False,
        )
    write_specs(folder, _fitted_specs(options))
    path = folder / "report.json"
    if not path.exists():
        raise vanished(folder)
    return report, path


def _show_plan(plan: Plan) -> None:
    """Print what is about to run and about how long it will take."""
    for each in plan.notes:
        console.note(each)
    if plan.finished:
        console.note(
            f"finished before, in {plan.finished}: it is read; --overwrite computes it again"
        )
        return
    form = f", {' + '.join(plan.form)}" if plan.form else ""
    console.note(
        f"{plan.inputs:,} inputs to evaluate ({plan.fit_inputs:,} to fit, {plan.select_inputs:,} to"
        f" select), sources {', '.join(plan.sources)}: about"
        f" {console.duration(plan.seconds)} (micro-batch {plan.micro_batch}{form})"
    )
    if plan.warning:
        console.note(f"warning: {plan.warning}")


def _resolve(options: MeasureOptions | FitOptions, measure: Measure) -> Resolved:
    """Load the data and the classifier that the options name.

    Warn if the demo digits are used with the user's model because --data is missing.
    """
    model, data = options.model.model, options.data
    default = ModelSettings.model_fields["model"].default
    if model != default and not data.is_typed("data") and not options.quiet:
        console.note(
            f"--data is not given: {model} is assessed on {data.data}, images of"
            " 1 x 8 x 8 in 10 classes"
        )
    return resolve(model, data.data, measure, options.budget, network=options.model, reading=data)


def _render(report: Report, folder: Path, options: MeasureOptions) -> bool:
    """Write the page and the figures; return whether that worked. A failure costs no numbers."""
    if not (options.page or options.figures):
        return True
    try:
        files = RunFiles.of(report, folder)
        written = write_rendered(files, page=options.page, figures=options.figures)
    except Exception as error:  # the numbers are safe in report.json
        reason = shorten_error(error).rstrip(".")
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
    if table is not None:
        _show_failures(report)
    rendered = _render(report, path.parent, options)
    if options.as_json:
        sys.stdout.write(table.to_json() if table else report.to_json())
    elif table is None and not options.quiet:
        show_report(report, path)
    else:
        if table and table.rows and not options.quiet:
            console.out.print(table.to_rich(console.out.width))
            console.out.print(note, markup=False, end="\n" if note else "")
            for line in trust_lines(report):
                console.out.print(line, markup=False)
        sys.stdout.write(f"{path}\n")
    failed = any(row.error and not row.flags for row in (*report.numbers, *report.other_radii))
    if failed or not rendered:
        raise ExitCode(1)


def show_report(report: Report, path: Path) -> None:
    """Print the tables and their notes, sources that failed, and the path of the report."""
    for table in terminal_tables(report):
        console.out.print(table.to_rich(console.out.width))
    console.out.print(notes_of(report), markup=False)
    _show_failures(report)
    console.print_line(str(path))


def _show_failures(report: Report) -> None:
    """Print a line for every source that failed or was skipped."""
    for row in report.numbers:
        if row.error:
            outcome = "skipped" if row.flags else "failed"
            console.show_error(f"source {row.name!r} {outcome}: {row.error}")
