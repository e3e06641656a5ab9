"""The page and the figures of a run as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nppr.report.figures import figures_of, save
from nppr.report.folder import RunFiles
from nppr.report.page.figures import page_figures
from nppr.report.page.render import render
from nppr.report.writing import write_whole

__all__ = ["PAGE", "write_rendered"]

PAGE = "report.html"


def write_rendered(
    files: RunFiles, *, page: bool = True, figures: Sequence[str] = (), out: Path | None = None
) -> list[Path]:
    """Write the page (to `out`, by default into the folder), and the figures in these formats."""
    drawn = figures_of(files.report, files.per_input, files.evidence)
    written = []
    if page:
        path = out or files.path / PAGE
        text = render(files.report, files.per_input, files.evidence, page_figures(drawn))
        write_whole(path, text)
        written.append(path)
    return written + (save(drawn, files.path / "figures", tuple(figures)) if figures else [])
