"""A figure with what a reader needs who cannot see it, and its files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from nppr.errors import SpecError
from nppr.report.figures.style import styled
from nppr.report.figures.svg import as_document, as_inline

__all__ = ["FORMATS", "Drawn", "as_svg", "check_formats", "save"]

FORMATS = ("svg", "png", "pdf")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure; `id` names its files, `alt` says in words and numbers what it shows, `caption` how
    to read it.
    """  # noqa: D205

    id: str
    title: str
    alt: str
    caption: str
    figure: Figure


def as_svg(drawn: Drawn) -> str:
    """The figure as SVG to stand in a page: it takes the page's colour and width."""
    return as_inline(drawn.figure, drawn.id, drawn.title, drawn.alt)


def check_formats(formats: str | Iterable[str]) -> tuple[str, ...]:
    """Formats from `svg,png` or a list of them, each once.

    >>> check_formats("png,svg,png")
    ('png', 'svg')
    """
    listed = formats.split(",") if isinstance(formats, str) else list(formats)
    wanted = tuple(dict.fromkeys(str(each).strip().lower() for each in listed))
    wrong = [each for each in wanted if each not in FORMATS]
    if wrong or not wanted:
        raise SpecError(
            f"`figures` must be svg, png or pdf, or some of them with commas between,"
            f" got {wrong[0] if wrong else ''!r}. Example: --figures svg,pdf"
        )
    return wanted


def save(drawn: Iterable[Drawn], folder: str | Path, formats: str | Iterable[str]) -> list[Path]:
    """Write each figure in each format, black on white, as `<id>.<format>`; the paths written."""
    wanted = check_formats(formats)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for each in drawn:
        for form in wanted:
            path = folder / f"{each.id}.{form}"
            if form == "svg":
                text = as_document(each.figure, each.id, each.title, each.alt)
                path.write_text(text, encoding="utf-8")
            else:
                dateless = {"CreationDate": None} if form == "pdf" else {}
                with styled():
                    each.figure.savefig(path, format=form, facecolor="white", metadata=dateless)
            paths.append(path)
    return paths
