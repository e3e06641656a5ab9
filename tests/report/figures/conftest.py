from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from nppr.core.budget import Budget
from nppr.noise import Dependency, Family
from nppr.report import PerInput, Report, read_run
from nppr.report.evidence import Evidence, NoiseDraws
from nppr.report.figures import FIGURES, Drawn, Subject, draw, figures_of
from nppr.report.figures.noise_figures import NOISE_FIGURES
from nppr.run.assess import assess
from nppr.run.assessment_run import AssessmentRun
from nppr.run.collect_evidence import collect_draws
from nppr.run.resolve import resolve
from nppr.search import default_settings
from nppr.search.learned_noise import load_learned
from nppr.settings import Measure, Run


@dataclass(frozen=True)
class Finished:
    """A run with all that figures can be drawn of; its other radii repeat its results."""

    report: Report
    per_input: PerInput
    evidence: Evidence

    @cached_property
    def drawn(self) -> dict[str, Drawn]:
        found = figures_of(self.report, self.per_input, self.evidence)
        paper = draw(NOISE_FIGURES, Subject(self.report, self.per_input, self.evidence))
        return {each.id: each for each in (*paper, *found)}

    def only(self, *names: str) -> dict[str, Drawn]:
        """Some of the figures."""
        subject = Subject(self.report, self.per_input, self.evidence)
        found = draw(
            [each for each in (*NOISE_FIGURES, *FIGURES) if each.__name__ in names], subject
        )
        return {each.id: each for each in found}

    def with_report(self, **changes: Any) -> Finished:
        return replace(self, report=self.report.model_copy(update=changes))

    def with_class_names(self, names: list[str]) -> Finished:
        changes = {"class_names": tuple(names), "classes": len(names)}
        return self.with_report(data=self.report.data.model_copy(update=changes))

    def depending_on(self, dependency: Dependency) -> Finished:
        """The same with learned noise that is said to see this much."""
        made = [
            each.model_copy(update={"family": replace(each.family, dependency=dependency)})
            for each in self.report.distributions
        ]
        return self.with_report(distributions=tuple(made))

    def with_draws(self, **changes: Any) -> Finished:
        changed = tuple(replace(each, **changes) for each in self.evidence.draws)
        return replace(self, evidence=Evidence((), changed))

    @property
    def draws(self) -> NoiseDraws:
        return self.evidence.draws[0]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("figures") / "run"
    measure = Measure(inputs=30, draws=8, fit_inputs=150, select_inputs=60)
    assess(
        budget=Budget.linf(0.2),
        sources="nppr,uniform,pgd:steps=2",
        search=default_settings(
            Family(components=3), floors=(0.0, 0.5), calls=1024, inputs=64
        ).without_positions(),
        measure=measure,
        run=Run(out=out),
    )
    files = read_run(out)
    assert files.per_input is not None
    opened = AssessmentRun.open(resolve("digits-cnn", "digits", measure), Budget.linf(0.2), measure)
    noises = [each.source for each in load_learned(out) if each.source.fit_seed is None]
    evidence = Evidence((), collect_draws(opened, noises, np.arange(30)))
    others = [
        row.with_subject(radius=radius / 255) for radius in (2, 8) for row in files.report.numbers
    ]
    report = files.report.model_copy(update={"other_radii": tuple(others)})
    return Finished(report, files.per_input, evidence).depending_on(Dependency.JOINT)
