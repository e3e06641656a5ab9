"""Sources at other radii than that of the run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from helpers import Stray, half_classifier, two_class_data
from nppr.assess import assess
from nppr.budget import Budget
from nppr.errors import NpprError
from nppr.learn import learn
from nppr.search import default_settings
from nppr.search.learned_noise import LearnedNoise
from nppr.sources import CustomNoise
from nppr.tally import Metric, PerturbationSource


def test_learned_noise_is_scaled_to_the_radius() -> None:
    fit = default_settings(floors=(0.0,), calls=600)
    fitted = learn(fit=fit, budget=Budget.linf(0.2), fit_inputs=100, select_inputs=50)
    made = {"inputs": 40, "draws": 8, "sources": ""}
    report = assess(budget=Budget.linf(0.2), distributions=fitted, radii=["0.4", "0.1"], **made)  # type: ignore[arg-type]
    assert [at.text for at in report.radii] == ["0.1", "0.4"]
    for at in report.radii:
        moved = Budget.linf(at.radius)
        again = [LearnedNoise(replace(each.source, budget=moved), each.record) for each in fitted]
        alone = assess(budget=Budget.linf(at.radius), distributions=again, **made)  # type: ignore[arg-type]
        row = alone.headline("nppr", Metric.NPPR)
        assert row is not None
        assert at.results[0].value == row.value


def test_sources_whose_code_is_not_told_the_radius_are_refused_there() -> None:
    def mine(x: Tensor, _: Tensor, draws: int) -> Tensor:
        return x.unsqueeze(1).expand(-1, draws, -1, -1, -1)

    budget = Budget.linf(0.1)
    own: list[PerturbationSource] = [CustomNoise(budget, mine), Stray(budget, 0.05)]
    report = assess(
        half_classifier(), two_class_data(), budget=budget, sources=own, draws=4, radii=["0.2"]
    )
    here = [row for row in report.results if row.metric is Metric.PR]
    assert all(row.error is None for row in here)
    there = report.radii[0].results
    assert len(there) == 2
    assert all(row.error and "one radius only" in row.error for row in there)


def test_a_source_that_is_fitted_is_fitted_again() -> None:
    report = assess(
        sources="universal:epochs=1",
        inputs=60,
        fit_inputs=100,
        budget=Budget.linf(0.05),
        radii=["0.4"],
    )
    first = report.headline("universal:epochs=1", Metric.AR)
    assert first is not None
    assert first.value is not None
    there = report.radii[0].results[0].value
    assert there is not None
    assert there < first.value


def test_only_merged_without_a_right_input_keeps_the_run() -> None:
    data = two_class_data()
    wrong = half_classifier()
    with torch.no_grad():
        wrong.w.neg_()
    report = assess(
        wrong,
        data,
        budget=Budget.linf(0.1),
        sources="pgd:steps=1,uniform",
        draws=4,
        only_merged=True,
    )
    row = report.headline("merged", Metric.AR)
    assert row is not None
    assert row.error
    assert "correctly without noise" in row.error


@pytest.mark.parametrize("radii", [["0.1", "1/10"], ["x"]], ids=["twice", "word"])
def test_radii_are_checked(radii: list[str]) -> None:
    with pytest.raises(NpprError, match="`radii`"):
        assess(sources="uniform", inputs=10, radii=radii)
