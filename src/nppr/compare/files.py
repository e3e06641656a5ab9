"""The files of a comparison: `compare.json`, and what is rendered from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nppr.compare.page import page_of
from nppr.compare.schema import Comparison
from nppr.compare.tables import differences_table, long_table, paper_table, values_table
from nppr.compare.wording import answer, rule
from nppr.errors import RunFolderError
from nppr.report.exports import md_text, write_whole

__all__ = ["FORMATS", "to_latex", "to_md", "write_comparison"]

JSON = "compare.json"


def write_comparison(
    folder: str | Path,
    comparison: Comparison,
    formats: Sequence[str] = ("html", "md", "csv", "latex", "json"),
    *,
    overwrite: bool = False,
) -> list[Path]:
    """Write these formats, and always the JSON; a folder with another comparison is refused."""
    folder = Path(folder)
    names = [name for name in FORMATS if name in formats or name == "json"]
    held = [FORMATS[name][0] for name in FORMATS if (folder / FORMATS[name][0]).exists()]
    if held and not overwrite and not _same(folder / JSON, comparison):
        raise RunFolderError(
            f"`out` must be free or hold this comparison, {str(folder)!r} holds {held[0]} of another."
            " Choose another folder, or add --overwrite to replace it."
        )
    written = []
    for name in names:
        file, render = FORMATS[name]
        write_whole(folder / file, render(comparison))
        written.append(folder / file)
    return written


def to_md(comparison: Comparison) -> str:
    """Both tables with the notes, as Markdown."""
    parts = [
        "# " + md_text(" and ".join(entry.name for entry in comparison.entries)),
        md_text(answer(comparison)),
        values_table(comparison).to_md().rstrip(),
        md_text(values_table(comparison).caption),
    ]
    if any(result.differences for result in comparison.results):
        table = differences_table(comparison)
        parts += [table.to_md().rstrip(), md_text(table.caption), md_text(rule(comparison))]
    parts += [f"- {md_text(note)}" for note in comparison.notes]
    return "\n\n".join(parts) + "\n"


def to_latex(comparison: Comparison) -> str:
    """The tables of a paper: values, clean-normalised values, differences."""
    tables = [paper_table(comparison)]
    normalised = paper_table(comparison, normalised=True)
    if len(normalised.columns) > 1:
        tables.append(normalised)
    if any(result.differences for result in comparison.results):
        tables.append(differences_table(comparison))
    head = "% Needs \\usepackage{booktabs} and UTF-8.\n"
    return head + "\n".join(table.to_latex() for table in tables)


FORMATS: Mapping[str, tuple[str, Callable[[Comparison], str]]] = {
    "json": (JSON, Comparison.to_json),
    "html": ("compare.html", page_of),
    "md": ("compare.md", to_md),
    "csv": ("compare.csv", lambda comparison: long_table(comparison).to_csv()),
    "latex": ("compare.tex", to_latex),
}
"""File and rendering of each format."""


def _same(path: Path, comparison: Comparison) -> bool:
    try:
        return path.read_text(encoding="utf-8") == comparison.to_json()
    except (OSError, ValueError):
        return False
