"""The figures of a report: drawn with matplotlib, shown as SVG in the page or kept as files."""

import os
from collections.abc import Callable, Iterable

from nppr.errors import SpecError

try:
    import matplotlib  # noqa: F401
except ValueError as error:
    raise SpecError(
        "`MPLBACKEND` must be a backend of matplotlib, got"
        f" {os.environ.get('MPLBACKEND')!r}. Unset it: figures need none."
    ) from error

from nppr.report.evidence import Evidence
from nppr.report.figures.figure_style import Drawn, Subject, save, settle, styled
from nppr.report.figures.parameter_figures import failures, parameters
from nppr.report.figures.run_figures import brackets, floors, ladder, radii, rates, searches
from nppr.report.model import ReportRecord
from nppr.report.per_input import PerInput

__all__ = ["FIGURES", "Drawn", "Subject", "draw", "figures_of", "save"]

Figure = Callable[[Subject], Drawn | None]
"""Draw a figure, or nothing if the run lacks what it shows."""

FIGURES: tuple[Figure, ...] = (
    parameters, failures, searches, ladder, radii, floors, rates, brackets,
)  # fmt: skip
"""The figures of a page, the first two of transformations. Those for papers are in `noise_figures`."""


def figures_of(
    report: ReportRecord, per_input: PerInput | None = None, evidence: Evidence | None = None
) -> list[Drawn]:
    """Every figure for which the run has what is needed; what it lacks is left out."""
    return draw(FIGURES, Subject(report, per_input, evidence))


def draw(figures: Iterable[Figure], subject: Subject) -> list[Drawn]:
    """Draw these figures of a run in one style."""
    with styled():
        found = [each for figure in figures if (each := figure(subject)) is not None]
        for each in found:
            settle(each.figure)
    return found
