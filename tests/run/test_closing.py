"""What a finished run says about itself; flags of unfinished work: `test_growth`, `test_rare`."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import half_classifier, two_class_data
from nppr.assess import assess
from nppr.budget import Budget
from nppr.report.folder import read_run
from nppr.report.schema import Report
from nppr.search import default_settings


def test_fits_of_one_floor_are_described_with_their_spread() -> None:
    fit = default_settings(floors=(0.0, 0.5), calls=400, seeds=2)
    report = assess(
        budget=Budget.linf(0.2), sources="nppr", fit=fit,
        inputs=40, fit_inputs=80, select_inputs=40, draws=4,
    )  # fmt: skip
    assert len(report.distributions) == 4
    for floor in (0.0, 0.5):
        made = [each for each in report.distributions if each["family"]["floor"] == floor]
        assert len(made) == 2
        seeds = made[0]["fit_seeds"]
        assert list(seeds["values"]) == [each["source"] for each in made]
        values = sorted(seeds["values"].values())
        assert (seeds["minimum"], seeds["spread"]) == (values[0], values[1] - values[0])


def test_failing_to_collect_does_not_cost_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def measured(name: str) -> Report:
        return assess(
            half_classifier(), two_class_data(), budget=Budget.linf(0.1), sources="uniform,pgd",
            draws=4, out=tmp_path / name,
        )  # fmt: skip

    def fails(*_: object, **__: object) -> None:
        raise OSError("the images are gone")

    whole = measured("whole")
    assert read_run(tmp_path / "whole").evidence is not None
    monkeypatch.setattr("nppr.run.closing.collect", fails)
    assert measured("without").results == whole.results
    assert "nothing is collected to be shown" in caplog.text
    kept = read_run(tmp_path / "without")
    assert kept.evidence is None
    assert kept.report.results == whole.results
