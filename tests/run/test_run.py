"""One run: what is measured, what a source that fails costs, merged AR, other radii."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers import Broken, Stray, grouped, half_classifier, open_run, two_class_data
from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.measuring.measurement import measure
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.report import Report, read_run
from nppr.run.assess import assess, learn
from nppr.run.assessment_run import AssessmentRun
from nppr.search.search_settings import default_settings
from nppr.settings import Measure, Run
from nppr.sources import Source, Uniform, parse_sources
from nppr.sources.custom import CustomNoise

pytestmark = pytest.mark.slow

BUDGET = Budget.linf(0.2)


def measured(sources: Sequence[Source], **settings: Any) -> AssessmentRun:
    data = two_class_data(60)
    run = open_run(half_classifier(), data, BUDGET, Measure(draws=4, **settings), batch_size=16)
    run.measure_clean(keep=False)
    for source in sources:
        run.measure(source)
    return run


def test_a_source_that_fails_gets_a_row_and_the_others_go_on() -> None:
    run = measured([Broken(BUDGET, 0.0, "broken"), Uniform(BUDGET)])
    assert list(run.tallies) == [each.name for each in run.inside] == ["uniform"]
    errors = {row.source: row.error for row in run.numbers if row.error}
    assert errors == {"broken": "this source is broken"}


def test_a_source_without_a_budget_is_not_merged() -> None:
    run = measured(
        [*parse_sources("pgd-classic:steps=2", BUDGET), Stray(None, -1.0), Uniform(BUDGET)]
    )
    run.merge()
    row = run.numbers[-1]
    assert (row.source, row.metric) == ("merged", Metric.AR)
    correct = run.tallies["pgd-classic:steps=2"].unbroken & run.tallies["uniform"].unbroken
    assert (correct & ~run.tallies["stray"].unbroken).any()
    assert row.value == pytest.approx(correct.mean())


def test_noise_alone_is_not_merged() -> None:
    run = measured([Uniform(BUDGET), Stray(BUDGET, 0.1)])
    before = len(run.numbers)
    run.merge()
    assert len(run.numbers) == before


def test_only_merged_skips_broken_inputs_and_gives_attacks_no_row() -> None:
    (attack,) = parse_sources("pgd:steps=2", BUDGET)
    run = measured([Uniform(BUDGET), attack], only_merged=True)
    unbroken = run.tallies["uniform"].unbroken
    assert 0 < unbroken.sum() < 60
    assert not [row for row in run.numbers if row.metric is Metric.AR]
    whole = measure(attack, run.classifier, run.data.evaluate, draws=4)
    found = run.tallies["pgd:steps=2"]
    np.testing.assert_array_equal(found.unbroken, whole.unbroken & unbroken)
    assert found.calls < whole.calls


def test_only_merged_without_a_clean_correct_input_keeps_the_run() -> None:
    wrong = half_classifier()
    with torch.no_grad():
        wrong.w.neg_()
    report = assess(
        wrong,
        two_class_data(),
        budget=Budget.linf(0.1),
        sources="pgd:steps=1,uniform",
        measure=Measure(draws=4, only_merged=True),
        run=Run(anyway=True),
    )
    row = report.headline("merged", Metric.AR)
    assert row is not None
    assert row.error
    assert "at least one clean-correct input" in row.error


def test_searches_of_one_rung_and_floor_are_described_with_their_spread() -> None:
    search = replace(
        default_settings(Family(Dependency.LABEL), floors=(0.0, 0.5), calls=128, inputs=32),
        seeds=2, per_input_calls=0,
    ).without_positions()  # fmt: skip
    report = assess(
        budget=BUDGET,
        sources="nppr",
        search=search,
        measure=Measure(inputs=40, fit_inputs=80, select_inputs=40, draws=4),
    )
    assert len(report.distributions) == 8
    for number in range(0, 8, 2):
        made = report.distributions[number : number + 2]
        assert len({(each.dependency, each.family.floor) for each in made}) == 1
        (rung,) = [each for each in report.ladder if each.name == made[0].name]
        rows = [report.headline(each.name, Metric.NPPR) for each in made]
        assert rung.seeds == pytest.approx([row.value for row in rows if row])
        assert rung.spread == max(rung.seeds) - min(rung.seeds)


def test_failing_to_collect_does_not_cost_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def run(name: str) -> Report:
        return assess(
            half_classifier(),
            two_class_data(),
            budget=Budget.linf(0.1),
            sources="uniform,pgd",
            measure=Measure(draws=4),
            run=Run(out=tmp_path / name),
        )

    def fail(*_: object, **__: object) -> None:
        raise OSError("the images are gone")

    whole = run("whole")
    assert read_run(tmp_path / "whole").evidence is not None
    monkeypatch.setattr("nppr.run.complete_run.collect_evidence", fail)
    assert run("without").numbers == whole.numbers
    assert "the page will show numbers only" in caplog.text
    kept = read_run(tmp_path / "without")
    assert kept.evidence is None
    assert kept.report.numbers == whole.numbers


def test_learned_noise_is_scaled_to_another_radius() -> None:
    family = Family(Dependency.INDEPENDENT)
    search = default_settings(family, calls=256, inputs=32).without_positions()
    (learned,) = learn(
        budget=BUDGET, search=search, measure=Measure(fit_inputs=100, select_inputs=50)
    )
    made: dict[str, Any] = {"inputs": 40, "draws": 8, "sources": ""}
    report = assess(budget=BUDGET, distributions=[learned], **grouped(radii=["0.4", "0.1"], **made))
    assert [row.radius for row in report.other_radii if row.own] == [0.1, 0.4]
    for radius, rows in report.at_other_radii():
        moved = type(learned)(learned.source.at(Budget.linf(radius)), learned.record)
        alone = assess(budget=Budget.linf(radius), distributions=[moved], **grouped(**made))
        row = alone.headline("nppr:independent", Metric.NPPR)
        assert row is not None
        assert rows[0].value == row.value


def test_a_source_of_ones_own_has_one_radius() -> None:
    def mine(x: Tensor, _: Tensor, draws: int) -> Tensor:
        return x.unsqueeze(1).expand(-1, draws, -1, -1, -1)

    budget = Budget.linf(0.1)
    report = assess(
        half_classifier(),
        two_class_data(),
        budget=budget,
        sources=[CustomNoise(budget, mine)],
        measure=Measure(draws=4, radii=("0.2",)),
    )
    assert {row.error for row in report.numbers} == {None}
    (row,) = report.other_radii
    assert row.radius == 0.2
    assert "one radius only" in str(row.error)


def test_a_source_that_is_fitted_is_fitted_again_for_another_radius() -> None:
    report = assess(
        sources="universal:calls=640",
        budget=Budget.linf(0.05),
        measure=Measure(inputs=60, fit_inputs=100, radii=("0.4",)),
    )
    first = report.headline("universal:calls=640", Metric.AR)
    assert first is not None
    (there,) = report.other_radii
    assert there.value is not None
    assert first.value is not None
    assert there.value < first.value
