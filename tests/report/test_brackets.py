"""Brackets as they are read off a report: pairs of rows, sentence, table, page and figure."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import norm

from helpers import Linear
from nppr import Budget, assess
from nppr.core.tally import Claim, Metric
from nppr.data import from_arrays
from nppr.report import Report
from nppr.report.brackets import (
    bracket_scope,
    bracket_sentence,
    bracket_table,
    brackets_of,
    quoted_bracket,
)
from nppr.report.figures import figures_of
from nppr.report.page import page_of
from nppr.report.page.render import render
from nppr.report.printed_numbers import Numbers, percent
from nppr.report.quotes import sentence_of
from nppr.settings import Measure
from nppr.sources.gaussian_offset import make_offset_sources
from report.page.made_runs import made_report
from report.page.test_render import Page, wrong_numbers

SIGMA = 0.02
W = torch.tensor([[[1.0, -2.0], [0.5, 3.0]]])


@cache
def measured() -> Report:
    """A linear classifier on inputs at 1 to 3 standard deviations from its boundary."""
    distances = torch.linspace(1, 3, 60) * SIGMA / W.norm()
    images = 0.5 + distances.view(-1, 1, 1, 1) * W
    data = from_arrays(images, torch.zeros(60).long(), shares=(0.0, 0.0), name="line", classes=2)
    model = Linear(W, -0.5 * float(W.sum()))
    sources = make_offset_sources(SIGMA, [0.02, 0.01])
    return assess(model, data, budget=Budget.l2(0.02), sources=sources, measure=Measure(draws=400))


def test_every_bracket_has_both_ends_for_both_claims_and_contains_the_truth() -> None:
    found = brackets_of(measured())
    assert [(each.radius, each.steps, each.sigma) for each in found] == [
        ("0.01", 0.5, SIGMA), ("0.02", 1.0, SIGMA),
    ]  # fmt: skip
    for each in found:
        exact = float(norm.cdf(np.linspace(1, 3, 60) - each.steps).mean())
        assert set(each.ends) == set(Claim)
        for claim, ends in each.ends.items():
            assert (ends.least.claim, ends.most.claim) == (claim, claim)
            assert ends.low < exact < ends.high
        assert each.ends[Claim.TEST_SET].high - each.ends[Claim.TEST_SET].low < 0.06


def test_a_run_without_both_ends_has_none() -> None:
    assert brackets_of(made_report()[0]) == []
    assert quoted_bracket(made_report()[0]) is None
    one_end = tuple(row for row in measured().numbers if row.metric is not Metric.NPPR)
    assert brackets_of(measured().model_copy(update={"numbers": one_end})) == []


def test_the_quoted_bracket_is_that_of_the_budget() -> None:
    found = quoted_bracket(measured())
    assert found is not None
    assert found.steps == 1.0
    text = bracket_sentence(Numbers(measured()), found)
    ends = found.ends[Claim.TEST_SET]
    low, high = percent(ends.low, "at-least"), percent(ends.high, "at-most")
    start = f"[at least {low} %, at most {high} %] of the draws are"
    assert text.startswith(start)
    assert "plus any offset of l2 length up to 0.02 (1 sigma)" in text
    scope = bracket_scope(Numbers(measured()), found)
    assert scope.startswith("60 clean-correct inputs, 400 draws each")
    assert "95 % confidence" in scope


def test_the_table_has_the_numbers_of_the_rows() -> None:
    rows = json.loads(bracket_table(measured()).to_json())
    for row, each in zip(rows, brackets_of(measured()), strict=True):
        assert row["steps"] == each.steps
        for claim, name in ((Claim.TEST_SET, "test_set"), (Claim.POPULATION, "population")):
            ends = each.ends[claim]
            assert [row[f"{name}_low"], row[f"{name}_high"]] == [ends.low, ends.high]


@pytest.mark.slow
def test_the_page_answers_with_the_brackets_and_no_wrong_number() -> None:
    report = measured()
    text = page_of(report, report.per_input, None)
    assert wrong_numbers(Page(text), json.loads(report.to_json())) == []
    start, _, rest = text.partition('id="bracket-table"')
    assert "The answer" in start
    assert "The ladder" not in start.rpartition("The answer")[2]
    assert 'id="figure-brackets"' in rest
    assert "the Euclidean length of the change" not in text, "Gaussian noise is not bounded"
    assert "bracket-table" not in render(made_report()[0])


def test_the_picture_describes_both_ends() -> None:
    (drawn,) = (each for each in figures_of(measured()) if each.id == "brackets")
    found = brackets_of(measured())
    assert len(found) == 2
    for each in found:
        ends = each.ends[Claim.TEST_SET]
        low, high = percent(ends.low, "at-least"), percent(ends.high, "at-most")
        words = f"at least {low} % and at most {high} % for this"
        assert words in drawn.alt
    assert not any(each.id == "brackets" for each in figures_of(made_report()[0]))


def test_both_ends_have_a_sentence_that_names_the_noise() -> None:
    numbers = Numbers(measured())
    for metric, start in ((Metric.BOUND, "all noise"), (Metric.NPPR, "noise")):
        row = next(row for row in measured().numbers if row.metric is metric)
        words = f"{start} that is N(0, 0.02^2) noise plus any offset of l2 length up to"
        assert words in sentence_of(numbers, row)
