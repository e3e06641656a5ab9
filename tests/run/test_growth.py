"""Runs that measure until a precision is reached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers import Broken, half_classifier
from nppr.assess import assess
from nppr.budget import Budget
from nppr.data import from_arrays
from nppr.errors import SpecError
from nppr.flags import PRECISION
from nppr.report import Report
from nppr.tally import Metric, Progress


def rows(report: Report) -> list[dict[str, Any]]:
    return [row.model_dump(mode="json") for row in report.results]


def test_the_numbers_are_those_of_a_plain_run_of_the_same_size() -> None:
    sources = "gaussian,pgd:steps=2"
    grown = assess(sources=sources, precision=0.006, batch_size=64)
    assert grown.precision is not None
    assert grown.precision["reached"]
    assert len(grown.precision["rounds"]) > 1
    inputs, draws = grown.precision["rounds"][-1]
    plain = assess(sources=sources, inputs=inputs, draws=draws, batch_size=64)
    assert rows(grown) == rows(plain)
    assert grown.data == plain.data
    assert grown.data["inputs"]["evaluate"] == inputs


def test_more_draws_extend_fewer_when_inputs_run_out() -> None:
    images = torch.full((40, 1, 4, 4), 0.5)
    images[..., 0, 0] += 1e-3  # just right without noise, a coin toss with it
    data = from_arrays(images, torch.arange(40) % 1, shares=(0.0, 0.0), class_names=("a", "b"))
    made = {"budget": Budget.linf(0.1), "sources": "uniform", "batch_size": 16}
    grown = assess(half_classifier(), data, precision=0.045, **made)  # type: ignore[arg-type]
    assert grown.precision is not None
    assert grown.precision["reached"]
    assert grown.precision["rounds"][0] == [40, 16]
    inputs, draws = grown.precision["rounds"][-1]
    assert inputs == 40
    assert draws > 16
    plain = assess(half_classifier(), data, draws=draws, **made)  # type: ignore[arg-type]
    assert rows(grown) == rows(plain)


def test_what_cannot_be_reached_says_what_it_would_take() -> None:
    report = assess(sources="gaussian", inputs=30, precision=0.001)
    assert report.precision is not None
    assert not report.precision["reached"]
    assert report.precision["available_inputs"] == 30
    flag = next(flag for flag in report.flags if flag.id == PRECISION)
    assert f"{report.precision['needed_inputs']:,} inputs" in flag.message
    assert report.precision["needed_inputs"] > 30


def test_an_interrupted_run_resumes_to_the_same_report(tmp_path: Path) -> None:
    whole = assess(sources="gaussian,uniform", precision=0.006, out=tmp_path / "a")
    assert whole.precision is not None
    last = whole.precision["rounds"][-1][0]

    def interrupt(state: Progress) -> None:
        if state.source == "uniform" and state.total == last * 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assess(sources="gaussian,uniform", precision=0.006, out=tmp_path / "b", progress=interrupt)
    noted = json.loads((tmp_path / "b" / "run.json").read_text())["rounds"]
    assert noted == whole.precision["rounds"]
    again = assess(sources="gaussian,uniform", precision=0.006, out=tmp_path / "b", resume=True)
    assert again.precision == whole.precision
    assert rows(again) == rows(whole)
    texts = [(tmp_path / name / "per_input.csv").read_text() for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_bad_input() -> None:
    with pytest.raises(SpecError, match="`precision` must lie in"):
        assess(sources="uniform", precision=0.5)
    with pytest.raises(SpecError, match="`precision` must come with a source that draws"):
        assess(sources="pgd:steps=1", inputs=20, precision=0.1)


def test_a_source_that_fails_has_its_row_and_does_not_stop_the_others() -> None:
    report = assess(sources=["uniform", Broken(Budget.linf(0.1), 0.0)], inputs=40, precision=0.1)
    assert report.headline("stray", Metric.PR) is not None
    failed = report.headline("stray", Metric.PR)
    assert failed is not None
    assert failed.error
    assert report.headline("uniform", Metric.PR) is not None
