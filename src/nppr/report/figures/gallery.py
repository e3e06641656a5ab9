"""All figures of a run, in the order of the paper."""

from __future__ import annotations

from collections.abc import Callable

from nppr.report.evidence import Evidence
from nppr.report.figures.bands import bands
from nppr.report.figures.components import covariances, means
from nppr.report.figures.contours import contours
from nppr.report.figures.drawn import Drawn
from nppr.report.figures.floors import floors
from nppr.report.figures.history import history
from nppr.report.figures.inputs import inputs
from nppr.report.figures.radii import radii
from nppr.report.figures.rates import rates
from nppr.report.figures.style import settle, styled
from nppr.report.figures.subject import Subject
from nppr.report.figures.tsne import tsne
from nppr.report.figures.weights import weights
from nppr.report.per_input import PerInput
from nppr.report.schema import Report

__all__ = ["FIGURES", "figures_of"]

FIGURES: tuple[Callable[[Subject], Drawn | None], ...] = (
    contours,
    tsne,
    inputs,
    bands,
    means,
    covariances,
    weights,
    history,
    radii,
    floors,
    rates,
)


def figures_of(
    report: Report, per_input: PerInput | None = None, evidence: Evidence | None = None
) -> list[Drawn]:
    """Every figure for which the run has what is needed; what it lacks is left out."""
    subject = Subject(report, per_input, evidence)
    with styled():
        found = [each for figure in FIGURES if (each := figure(subject)) is not None]
        for each in found:
            settle(each.figure)
    return found
