"""What the sections below the answer say in runs of every kind."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from nppr.report.evidence import Evidence
from nppr.report.page.render import render
from nppr.report.per_input import PerInput
from nppr.report.schema import Report
from nppr.report.tables import as_text
from nppr.types import Metric
from report.page.made_runs import made_evidence, made_report

RARE = {
    "source": "nppr", "unbroken": 9, "looked_at": 1, "largest": 4.4e-7,
    "status": {"found": 0, "below": 1, "out of calls": 0},
}  # fmt: skip


def section(
    name: str, report: Report, per_input: PerInput | None = None, evidence: Evidence | None = None
) -> str:
    """A section without its tags."""
    text = render(report, per_input, evidence).split(f'<section id="{name}"')[1]
    plain = re.sub("<[^>]*>", "", text.split("</section>")[0].partition(">")[2])
    return re.sub(r"\s+", " ", plain.replace("&nbsp;", " ").replace("&lt;", "<"))


def test_a_wanted_precision_says_what_was_measured() -> None:
    precision: dict[str, Any] = {
        "asked": 0.05, "reached": True, "rounds": [[40, 8], [60, 32]], "available_inputs": 120,
        "widths": {"uniform": {"half_width": 0.01}, "nppr": {"half_width": 0.031}},
    }  # fmt: skip
    report, _ = made_report()
    assert "20 an input of noise" in section("measured", report)
    text = section("measured", report.model_copy(update={"precision": precision}))
    assert "32 an input of noise" in text
    assert "asked for 5.0 points, reached with 60 of 120 inputs" in text
    assert "known to +-3.1 points or better" in text


def test_other_radii_are_upper_bounds_of_scaled_noise() -> None:
    report, _ = made_report(radii=True)
    text = section("comparison", report).partition("At other radii")[2]
    assert "Learned noise is that of radius 8/255, scaled" in text
    assert "merged" not in text.split("Rare")[0].split("Inputs that are")[0]
    assert re.search(r"ARpgd<= [\d.]+ \(", text)
    assert re.search(r"NPPRnppr<= [\d.]+ \([\d.-]+\)<= [\d.]+", text)
    assert not re.search(r"PRgaussian<=", text)


def test_rare_failures_are_told_without_contradiction() -> None:
    report, _ = made_report()
    report = report.model_copy(update={"rare": (RARE,)})
    text = section("comparison", report)
    assert "1 of the 9 inputs without a failing draw: 0 were found to fail" in text
    assert "1 fail too rarely to be found, 0 ran out of calls" in text
    assert "the other 8 count as never failing" in text
    assert "no failure probability is above 4.4e-07" in text
    assert "no calls were left: gaussian, uniform, bound:ratio=1+10, nppr:floor=0.5." in text
    console = " ".join(as_text(report, 120).split())
    assert "0 found to fail, 1 too rarely to be found, 0 out of calls" in console
    assert "the other 8 count as never failing" in console
    assert "splitting did not follow: gaussian, uniform" in console


@pytest.mark.parametrize("even", [True, False])
def test_classes_that_are_alike_have_no_worst_one(even: bool) -> None:
    report, per_input = made_report()
    if even:
        right = {**per_input.columns, "rate": per_input["rate"] * 0 + 1}
        per_input = PerInput(right)
    text = section("classes", report, per_input)
    assert ("all classes are alike: 100.0 % of the draws" in text) == even
    assert ("The worst class under" in text) != even


@pytest.mark.parametrize(("only", "colour"), [("all", "nppr"), ("noise", "pr"), ("attack", "ar")])
def test_bars_have_the_colour_of_their_metric(only: str, colour: str) -> None:
    text = render(*made_report(only=only))
    before = text.split('id="class-bars"')[0]
    assert before.rpartition('class="scroll c-')[2].startswith(f'{colour}"')


def test_inputs_that_no_draw_broke_are_not_the_worst() -> None:
    report, per_input = made_report()
    evidence = made_evidence()
    assert "fared worst under nppr" in section("worst", report, per_input, evidence)
    whole = tuple(replace(each, rates=torch.ones(8)) for each in evidence.worst)
    text = section("worst", report, per_input, Evidence(whole))
    assert "No draw under nppr failed" in text
    assert "fared worst under nppr" not in text


def test_classes_and_pictures_are_of_the_same_source() -> None:
    report, per_input = made_report()
    made = [{**each, "fit": {**each["fit"]}} for each in report.distributions]
    made[0]["fit"]["with_references"] = {"winner": "gaussian"}
    report = report.model_copy(update={"distributions": tuple(made)})
    worst = made_evidence().worst
    evidence = Evidence((*worst, replace(worst[0], source="gaussian")))
    assert "under gaussian" in section("classes", report, per_input)
    assert "fared worst under gaussian" in section("worst", report, per_input, evidence)


def test_one_input_is_no_plural() -> None:
    report, _ = made_report(1, 2)
    assert "of 1 input. " in section("answer", report)
    assert report.headline("clean", Metric.ACCURACY) is not None
