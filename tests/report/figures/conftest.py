from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from nppr.assess import assess
from nppr.budget import Budget
from nppr.classifiers import load_classifier, prepare
from nppr.collect import collect
from nppr.data import load_data
from nppr.measure import measure, probe
from nppr.noise import Family
from nppr.report.evidence import Draws, Evidence
from nppr.report.figures import Drawn, figures_of
from nppr.report.figures.gallery import FIGURES
from nppr.report.figures.style import styled
from nppr.report.figures.subject import Subject
from nppr.report.per_input import PerInput, read_per_input
from nppr.report.schema import AtRadius, Report
from nppr.search import default_settings
from nppr.search.learned_noise import load_learned
from nppr.sources import Clean, Uniform
from nppr.tally import PerturbationSource


@dataclass(frozen=True)
class Finished:
    """A run with all that figures can be drawn of; its other radii repeat its results."""

    report: Report
    per_input: PerInput
    evidence: Evidence

    @cached_property
    def drawn(self) -> dict[str, Drawn]:
        found = figures_of(self.report, self.per_input, self.evidence)
        return {each.id: each for each in found}

    def only(self, *names: str) -> dict[str, Drawn]:
        """Some of the figures."""
        subject = Subject(self.report, self.per_input, self.evidence)
        with styled():
            found = [each(subject) for each in FIGURES if each.__name__ in names]
        return {each.id: each for each in found if each is not None}

    def with_report(self, **changes: Any) -> Finished:
        return replace(self, report=self.report.model_copy(update=changes))

    def with_class_names(self, names: list[str]) -> Finished:
        data = {**self.report.data, "class_names": names, "classes": len(names)}
        return self.with_report(data=data)

    def with_draws(self, **changes: Any) -> Finished:
        changed = tuple(replace(each, **changes) for each in self.evidence.draws)
        return replace(self, evidence=Evidence((), changed))

    @property
    def draws(self) -> Draws:
        return self.evidence.draws[0]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    out = tmp_path_factory.mktemp("figures") / "run"
    report = assess(
        inputs=50,
        draws=8,
        budget=Budget.linf(0.2),
        sources="nppr,uniform,pgd:steps=2",
        fit=default_settings(Family(components=3), calls=2048, inputs=64),
        fit_inputs=150,
        select_inputs=60,
        out=out,
    )
    data = load_data("digits").limit(inputs=50)
    known = load_classifier("digits-cnn", data=data)
    classifier = prepare(known, probe(data.evaluate), classes=10, micro_batch=64)
    clean = measure(Clean(), classifier, data.evaluate, clean_correct=np.ones(50, bool))
    fitted = load_learned(out)
    sources: list[PerturbationSource] = [Uniform(Budget.linf(0.2))]
    tallies = {
        each.name: measure(each, classifier, data.evaluate, draws=8, clean_correct=clean.correct == 1)
        for each in [*sources, *(one.source for one in fitted)]
    }
    evidence = collect(classifier, data, tallies, clean, sources, fitted, budget=Budget.linf(0.2))
    others = tuple(
        AtRadius(radius=radius / 255, text=f"{radius}/255", results=report.results)
        for radius in (2, 8)
    )
    seeing = [
        {**each, "family": {**each["family"], "dependency": "joint"}}
        for each in report.distributions
    ]
    report = report.model_copy(update={"radii": others, "distributions": tuple(seeing)})
    return Finished(report, read_per_input(out / "per_input.csv"), evidence)
