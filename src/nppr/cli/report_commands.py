"""`nppr report`, `nppr export` and `nppr compare`: what is rendered from finished runs."""

from __future__ import annotations

import sys

from nppr.cli import console
from nppr.cli.app import name_folder
from nppr.cli.commands import CompareOptions, ExportOptions, ReportOptions, SchemaOptions
from nppr.compare import FORMATS as COMPARE_FORMATS
from nppr.compare import compare, console_tables, summary, write_comparison
from nppr.export.exports import write_exports
from nppr.report import FORMATS, read_run, schema_text, table_of, write_rendered
from nppr.settings import require_one_of
from nppr.system.records import write_whole


def execute_report(options: ReportOptions) -> None:
    """Run `nppr report`."""
    form, kinds, out = options.form, options.figures, options.out
    require_one_of("format", form, ("html", "parquet", *FORMATS))
    files = read_run(options.run)
    if form == "parquet":
        path = out or files.path / "per_input.parquet"
        files.report.per_input.to_parquet(path)
        sys.stdout.write(f"{path}\n")
    elif form != "html":
        text = FORMATS[form](table_of(files.report))
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


def execute_schema(options: SchemaOptions) -> None:
    """Print the schema, or write it to a file."""
    text = schema_text()
    if options.out is not None:
        write_whole(options.out, text)
    sys.stdout.write(text if options.out is None else f"{options.out}\n")


def execute_export(options: ExportOptions) -> None:
    """Run `nppr export`."""
    for path in write_exports(options.run, options.to, options.out, options.gate):
        console.print_line(str(path))


def execute_compare(options: CompareOptions) -> None:
    """Run `nppr compare`."""
    formats = tuple(dict.fromkeys(name.strip() for name in options.formats.split(",")))
    for name in formats:
        require_one_of("format", name, COMPARE_FORMATS)
    runs = options.runs or []
    choices = {
        **options.measure.model_dump(include={"confidence", "seed"}),
        "allow_different_data": options.allow_different_data,
    }
    comparison = compare(runs, **choices)
    settings = ([str(each.resolve()) for each in runs], choices)
    folder = options.run.out or name_folder("compare", comparison.entries[0].data, settings)
    written = write_comparison(folder, comparison, formats, overwrite=options.run.overwrite)
    if not options.quiet:
        console.out.print(summary(comparison), markup=False)
        for table in console_tables(comparison):
            console.out.print(table)
    for path in written[:1] if options.quiet else written:
        console.print_line(str(path))
