"""`nppr compare`: several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nppr import console
from nppr.cli import options

__all__ = ["compare"]

Runs = Annotated[
    list[Path] | None, typer.Argument(metavar="RUN RUN...", help="Run folders of nppr assess.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder of the comparison. Default: one under runs/ for these runs."
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", help="What to write beside compare.json: html, md, csv, latex, json."),
]
AllowDifferentData = Annotated[
    bool,
    typer.Option(
        "--allow-different-data", help="Compare runs on different inputs; nothing is paired then."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the resampling.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace another comparison in --out.")
]


def compare(
    runs: Runs = None,
    out: Out = None,
    formats: Format = "html,md,csv,latex,json",
    confidence: options.Confidence = 0.95,
    seed: Seed = 0,
    allow_different_data: AllowDifferentData = False,
    overwrite: Overwrite = False,
    quiet: options.Quiet = False,
) -> None:
    """Several classifiers or settings side by side, with paired differences and ranks.

    Runs that differ in the seed alone become one entry: mean and standard deviation over seeds.
    """
    from nppr.compare import compare as compare_runs
    from nppr.compare.console_table import console_tables, summary
    from nppr.compare.files import FORMATS, write_comparison
    from nppr.report.exports import formats_of

    given = runs or []
    asked = formats_of(formats, FORMATS)
    comparison = compare_runs(
        given, confidence=confidence, seed=seed, allow_different_data=allow_different_data
    )
    settings = ([str(run.resolve()) for run in given], confidence, seed, allow_different_data)
    folder = out or options.default_folder("compare", comparison.entries[0].data, settings)
    written = write_comparison(folder, comparison, asked, overwrite=overwrite)
    if not quiet:
        for table in console_tables(comparison):
            console.out.print(table)
        console.out.print(summary(comparison), markup=False)
    for path in written[:1] if quiet else written:
        console.out.print(str(path), markup=False, soft_wrap=True)
