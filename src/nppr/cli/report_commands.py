"""`nppr report`, `nppr export` and `nppr compare`: what is rendered from finished runs."""

from __future__ import annotations

import sys
from pathlib import Path

from nppr import console
from nppr.cli.app import command
from nppr.cli.measure_commands import named_folder
from nppr.options import (
    FIGURES_OPTION,
    QUIET_OPTION,
    Options,
    figure_formats,
    option,
    require_one_of,
)

FORMATS = ("html", "md", "csv", "latex", "json", "parquet")


class ReportOptions(Options):
    """Options of `nppr report`."""

    run: Path = option(..., "A run folder, such as that of nppr assess.", flag="RUN")
    out: Path | None = option(
        None,
        "File to write. Default: report.html or per_input.parquet in RUN; tables are printed.",
    )
    form: str = option(
        "html",
        "html: the page; md, csv, latex or json: the table of results alone; parquet: the rows of"
        " per_input.csv (extra parquet).",
        flag="--format",
    )
    figures: str | None = FIGURES_OPTION
    quiet: bool = QUIET_OPTION


@command("""
    nppr report runs/mine --figures svg,pdf
        render the page of a run again, and its figures as files
    nppr report runs/mine --format latex
        its table for a paper
""")
def report(options: ReportOptions) -> None:
    """Render the page of a run again, or its table for a paper.

    Reads report.json, per_input.csv and evidence.safetensors in the folder and changes none of them.
    The page is one file that needs no network.
    """
    form, out = options.form, options.out
    require_one_of("format", form, FORMATS)
    kinds = figure_formats(options.figures)

    from nppr.records import write_whole
    from nppr.report import FORMATS as RENDERINGS
    from nppr.report import read_run, table_of, write_rendered

    files = read_run(options.run)
    if form == "parquet":
        path = out or files.path / "per_input.parquet"
        files.report.per_input.to_parquet(path)
        sys.stdout.write(f"{path}\n")
    elif form != "html":
        text = RENDERINGS[form](table_of(files.report))
        if out is not None:
            write_whole(out, text)
        sys.stdout.write(text if out is None else f"{out}\n")
    if form == "html" or kinds:
        page = form == "html"
        paths = write_rendered(files, page=page, figures=kinds, out=out if page else None)
        if page:
            sys.stdout.write(f"{paths[0]}\n")
        if kinds and not options.quiet:
            console.note(f"{len(paths) - page} figures in {files.path / 'figures'}")


class ExportOptions(Options):
    """Options of `nppr export`."""

    run: Path = option(..., "A run folder, such as that of nppr assess.", flag="RUN")
    to: str = option(
        "safety-case", "The document: safety-case, technical-documentation or cyclonedx."
    )
    gate: Path | None = option(
        None,
        "Output of nppr gate --json for the same classifier: the safety case argues for its"
        " requirements.",
    )
    out: Path | None = option(None, "Folder to write to. Default: exports in RUN.")


@command("""
    nppr export runs/mine --to technical-documentation
        its numbers as a section of technical documentation, in Markdown
    nppr export runs/mine --to cyclonedx
        its numbers as a CycloneDX model card
""")
def export(options: ExportOptions) -> None:
    """Write documents for assessors from a run: safety case, technical documentation, model card.

    Reads report.json alone. Numbers that a flag makes unreliable are findings, not evidence.
    """
    from nppr.report.exports import EXPORTS, write_exports

    require_one_of("to", options.to, EXPORTS)
    for path in write_exports(options.run, options.to, options.out, options.gate):
        console.print_line(str(path))


class CompareOptions(Options):
    """Options of `nppr compare`."""

    runs: list[Path] | None = option(None, "Run folders of nppr assess, two or more.", flag="RUN")
    out: Path | None = option(
        None, "Folder of the comparison. Default: one under runs/ for these runs."
    )
    formats: str = option(
        "html,md,csv,latex,json", "What to write beside compare.json.", flag="--format"
    )
    confidence: float = option(0.95, "Confidence of all verdicts together.")
    seed: int = option(0, "Seed that orders the inputs in the betting tests of rates.")
    allow_different_data: bool = option(
        False, "Show runs on different inputs side by side, without verdicts."
    )
    overwrite: bool = option(False, "Replace another comparison in --out.")
    quiet: bool = QUIET_OPTION


@command("""
    nppr compare runs/resnet20 runs/resnet32
        which of two runs is more robust: the answer, paired differences, a page
""")
def compare(options: CompareOptions) -> None:
    """Say which classifier is more robust, from runs on the same inputs.

    Runs that differ in the seed alone become one entry: mean and standard deviation over seeds.
    """
    from nppr.compare import FORMATS as KNOWN
    from nppr.compare import compare as compare_runs
    from nppr.compare import console_tables, summary, write_comparison

    formats = tuple(dict.fromkeys(name.strip() for name in options.formats.split(",")))
    for name in formats:
        require_one_of("format", name, KNOWN)
    runs = options.runs or []
    choices = options.model_dump(include={"confidence", "seed", "allow_different_data"})
    comparison = compare_runs(runs, **choices)
    settings = ([str(each.resolve()) for each in runs], choices)
    folder = options.out or named_folder("compare", comparison.entries[0].data, settings)
    written = write_comparison(folder, comparison, formats, overwrite=options.overwrite)
    if not options.quiet:
        console.out.print(summary(comparison), markup=False)
        for table in console_tables(comparison):
            console.out.print(table)
    for path in written[:1] if options.quiet else written:
        console.print_line(str(path))
