"""The figures of a report: drawn with matplotlib, shown as SVG in the page or kept as files."""

import os
from collections.abc import Callable

from nppr.errors import SpecError

try:
    import matplotlib  # noqa: F401
except ValueError as error:
    raise SpecError(
        "`MPLBACKEND` must be a backend of matplotlib, got"
        f" {os.environ.get('MPLBACKEND')!r}. Unset it: figures need none."
    ) from error

from nppr.report.evidence import Evidence
from nppr.report.figures.bracket_figure import brackets
from nppr.report.figures.figure_style import Drawn, Subject, save, settle, styled
from nppr.report.figures.noise_figures import (
    bands,
    contours,
    covariances,
    inputs,
    means,
    tsne,
    weights,
)
from nppr.report.figures.parameter_figures import failures, parameters
from nppr.report.figures.run_figures import floors, history, ladder, radii, rates
from nppr.report.model import ReportRecord
from nppr.report.per_input import PerInput

__all__ = ["FIGURES", "Drawn", "figures_of", "save"]

FIGURES: tuple[Callable[[Subject], Drawn | None], ...] = (
    contours, tsne, inputs, bands, means, covariances, weights, history, ladder, radii, floors,
    rates, brackets,
)  # fmt: skip
"""In the order of the paper."""

TRANSFORMATION_FIGURES = (parameters, failures, weights, history, ladder, radii, floors, rates)
"""Of a transformation: its parameters are shown instead of perturbed pixels."""


def figures_of(
    report: ReportRecord, per_input: PerInput | None = None, evidence: Evidence | None = None
) -> list[Drawn]:
    """Every figure for which the run has what is needed; what it lacks is left out."""
    subject = Subject(report, per_input, evidence)
    with styled():
        wanted = TRANSFORMATION_FIGURES if report.budget.parameters else FIGURES
        found = [each for figure in wanted if (each := figure(subject)) is not None]
        for each in found:
            settle(each.figure)
    return found
