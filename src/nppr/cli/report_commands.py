"""`nppr report` and `nppr compare`: what is rendered from finished runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nppr import console
from nppr.cli.measure_commands import default_folder
from nppr.errors import unknown
from nppr.options import PageOptions

FORMATS = ("html", "md", "csv", "latex", "json", "parquet")

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder that nppr assess --out has written.")
]
Runs = Annotated[
    list[Path] | None, typer.Argument(metavar="RUN RUN...", help="Run folders of nppr assess.")
]
File = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="File to write. Default: report.html or per_input.parquet in RUN; tables are printed.",
    ),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        help="html: the page; md, csv, latex or json: the table of results alone; parquet: the lines of"
        " per_input.csv (extra parquet).",
    ),
]
Figures = Annotated[
    str | None, typer.Option("--figures", help="Write the figures as files too: svg, png, pdf.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but the path of the result.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder of the comparison. Default: one under runs/ for these runs."
    ),
]
Formats = Annotated[
    str,
    typer.Option("--format", help="What to write beside compare.json: html, md, csv, latex, json."),
]
DifferentData = Annotated[
    bool,
    typer.Option(
        "--allow-different-data", help="Compare runs on different inputs; nothing is paired then."
    ),
]
Confidence = Annotated[float, typer.Option("--confidence", help="Confidence of the intervals.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the resampling.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace another comparison in --out.")
]


def report(
    run: Run,
    out: File = None,
    form: Format = "html",
    figures: Figures = None,
    quiet: Quiet = False,
) -> None:
    """Render the page of a run again, or its table for a paper.

    Reads report.json, per_input.csv and evidence.safetensors of the folder and changes none of them.
    The page is one file that needs no network.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    kinds = PageOptions(figures=figures).formats()

    from nppr.records import write_whole
    from nppr.report import FORMATS as RENDERINGS
    from nppr.report import read_run, table_of, write_rendered

    files = read_run(run)
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
        if kinds and not quiet:
            console.note(f"{len(paths) - page} figures in {files.path / 'figures'}")


def compare(
    runs: Runs = None,
    out: Folder = None,
    formats: Formats = "html,md,csv,latex,json",
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    allow_different_data: DifferentData = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Compare classifiers or settings side by side, with paired differences and ranks.

    Runs that differ in the seed alone become one entry: mean and standard deviation over seeds.
    """
    from nppr.compare import FORMATS as KNOWN
    from nppr.compare import compare as compare_runs
    from nppr.compare import console_tables, summary, write_comparison

    asked = tuple(dict.fromkeys(name.strip() for name in formats.split(",")))
    for name in asked:
        if name not in KNOWN:
            raise unknown("format", name, KNOWN)
    given = runs or []
    comparison = compare_runs(
        given, confidence=confidence, seed=seed, allow_different_data=allow_different_data
    )
    settings = ([str(each.resolve()) for each in given], confidence, seed, allow_different_data)
    folder = out or default_folder("compare", comparison.entries[0].data, settings)
    written = write_comparison(folder, comparison, asked, overwrite=overwrite)
    if not quiet:
        for table in console_tables(comparison):
            console.out.print(table)
        console.out.print(summary(comparison), markup=False)
    for path in written[:1] if quiet else written:
        console.print_line(str(path))


EXAMPLES = {
    "report": """
  nppr report runs/mine --figures svg,pdf
      render the page of a run again, and its figures as files
  nppr report runs/mine --format latex
      its table for a paper""",
    "compare": """
  nppr compare runs/resnet20 runs/resnet32
      two runs side by side: paired differences, ranks, a page and tables""",
}
