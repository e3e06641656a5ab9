"""`nppr report`: the page, tables and figures of a run, from its folder alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nppr import console
from nppr.cli import options
from nppr.cli.groups import PageOptions
from nppr.errors import RunFolderError, unknown

if TYPE_CHECKING:
    from nppr.report.folder import RunFiles

__all__ = ["report"]

FORMATS = ("html", "md", "csv", "latex", "json", "parquet")

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder that nppr assess --out has written.")
]
Out = Annotated[
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
        help="html: the page; md, csv, latex or json: the comparison table alone; parquet: the lines of"
        " per_input.csv (extra parquet).",
    ),
]


def report(
    run: Run,
    out: Out = None,
    form: Format = "html",
    figures: options.Figures = None,
    quiet: options.Quiet = False,
) -> None:
    """Render the page of a run again, or its table for a paper.

    Reads report.json, per_input.csv and evidence.safetensors of the folder and changes none of them.
    The page is one file that needs no network.
    """
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    from nppr.report.folder import read_run

    files = read_run(run)
    kinds = PageOptions(figures=figures).kinds()
    with _readable(files):
        _render(files, form, out, kinds, quiet=quiet)


def _render(
    files: RunFiles, form: str, out: Path | None, kinds: Sequence[str], *, quiet: bool
) -> None:
    if form == "parquet":
        _write_lines(files, out or files.path / "per_input.parquet")
    elif form != "html":
        _write_table(files, form, out)
    if form == "html" or kinds:
        from nppr.report.page import write_rendered

        page = form == "html"
        paths = write_rendered(files, page=page, figures=kinds, out=out)
        if page:
            sys.stdout.write(f"{paths[0]}\n")
        if kinds and not quiet:
            number = len(paths) - page
            console.err.print(f"{number} figures in {files.path / 'figures'}", markup=False)


@contextmanager
def _readable(files: RunFiles) -> Iterator[None]:
    """What no check of the files foresaw is one line too."""
    from jinja2 import UndefinedError

    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, UndefinedError) as error:
        reason = " ".join(str(error).split())
        raise RunFolderError(
            f"`run` must hold the files that nppr has written, those of {str(files.path)!r} cannot be"
            f" rendered: {type(error).__name__}: {reason:.200}. Repeat the run's command to write"
            " them again."
        ) from error


def _write_lines(files: RunFiles, path: Path) -> None:
    files.report.per_input.to_parquet(path)
    sys.stdout.write(f"{path}\n")


def _write_table(files: RunFiles, form: str, path: Path | None) -> None:
    from nppr.report.exports import FORMATS as RENDERINGS
    from nppr.report.exports import table_of, write_whole

    text = RENDERINGS[form](table_of(files.report))
    if path is None:
        sys.stdout.write(text)
        return
    write_whole(path, text)
    sys.stdout.write(f"{path}\n")
