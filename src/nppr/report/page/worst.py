"""The worst inputs: clean, the perturbation amplified, perturbed, and what it was taken for."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from nppr.report.evidence import Evidence, Worst
from nppr.report.page.classes import class_name
from nppr.report.page.headline import headline_of, measured_source
from nppr.report.page.pictures import amplified, png
from nppr.report.page.shell import rendered
from nppr.report.per_input import PerInput
from nppr.report.schema import WITH_REFERENCES, Report

__all__ = ["Case", "cases_of", "worst_inputs"]

MOST = 12
"""Inputs of a source on the page."""

OPEN = 6
"""Those that are seen at once; the others are folded away."""

SOURCES = 3


@dataclass(frozen=True)
class Case:
    """One input as it is shown."""

    index: int
    label: str
    taken_for: str
    broken: bool
    rate: float
    factor: str
    clean: Markup
    delta: Markup
    perturbed: Markup
    width: int
    height: int


def worst_inputs(
    report: Report, evidence: Evidence | None, per_input: PerInput | None = None
) -> Markup:
    """The section's body."""
    first = _first(report, per_input)
    worst = sorted(evidence.worst if evidence else (), key=lambda each: each.source != first)
    groups = [(each.source, cases_of(report, each)) for each in worst[:SOURCES]]
    groups = [(source, cases) for source, cases in groups if cases]
    return rendered(
        "worst.html.j2",
        report=report,
        groups=groups,
        open=OPEN,
        held=evidence is not None,
        unbroken=bool(groups) and all(case.rate == 1 for case in groups[0][1]),
    )


def _first(report: Report, per_input: PerInput | None) -> str:
    """The source whose draws the answer is about, as in the section about classes."""
    row = headline_of(report).row
    if row is None:
        return ""
    known = measured_source(report, per_input, row) if per_input is not None else None
    return known or row.source.removesuffix(WITH_REFERENCES)


def cases_of(report: Report, worst: Worst) -> list[Case]:
    """The first inputs of a source, the worst first."""
    norm, radius = str(report.budget["norm"]), float(report.budget["radius"])
    cases = []
    for i in range(min(MOST, len(worst.indices))):
        shown, scale = amplified(worst.delta[i], norm)
        label, taken = int(worst.labels[i]), int(worst.taken_for[i])
        height, width = worst.clean.shape[-2:]
        cases.append(
            Case(
                index=int(worst.indices[i]),
                label=class_name(report, label),
                taken_for=class_name(report, taken),
                broken=label != taken,
                rate=float(worst.rates[i]),
                factor=f"{scale / radius:.3g}",
                clean=png(worst.clean[i]),
                delta=png(shown),
                perturbed=png(worst.perturbed[i]),
                width=width,
                height=height,
            )
        )
    return cases
