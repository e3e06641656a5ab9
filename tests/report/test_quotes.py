"""Every number has a sentence with its scope; a line states what holds at least, and what it covers."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

import nppr
from helpers import stated
from nppr.core.tally import Claim, Direction, Metric
from nppr.report import Number, Report
from nppr.report.findings import bounds_of, table_rows
from nppr.report.number import BoundSubject, StatedInterval
from nppr.report.page import render
from nppr.report.printed_numbers import Numbers, percent
from nppr.report.quotes import at_least_line, coverage, quoted_rows, sentence_of, stated_bound
from nppr.report.results_table import as_text, terminal_tables
from nppr.sources.base import Source
from nppr.sources.fixed import Noise
from report.page.made_runs import MARKUP, made_report


@pytest.fixture(scope="module")
def report() -> Report:
    return made_report(radii=True)[0]


def sentence(report: Report, name: str, metric: Metric) -> tuple[Number, str]:
    row = report.headline(name, metric)
    assert row is not None
    return row, sentence_of(Numbers(report), row)


def test_an_upper_bound_is_quoted_with_its_upper_end_and_its_scope(report: Report) -> None:
    row, text = sentence(report, "nppr:joint:floor=0.5", Metric.NPPR)
    assert row.shown is not None
    assert row.shown is not stated(row)
    high, value = row.shown.high, row.value
    assert value is not None
    assert text == (
        "Under the worst admissible noise (nppr:joint:floor=0.5, the noise may depend on the input and"
        " its true label and is of any structure, even one fixed pattern, rho 0.5), the fraction of"
        " correct draws is"
        f" at most {percent(high, 'at-most')} % with 95 % confidence ({percent(value)} % observed)"
        ": resnet20 on pictures, linf 8/255; 103 clean-correct inputs, 20 draws each; the population"
        " they were drawn from; betting."
    )


def test_every_number_of_the_results_has_one_sentence(report: Report) -> None:
    first, others = quoted_rows(report)
    assert first == [(row, row.shown) for row in table_rows(report) if row.value is not None]
    metrics = {row.metric for row, _ in others}
    assert metrics >= {Metric.NORMALISED_ACCURACY, Metric.PROB_ACC, Metric.NPPR, Metric.BOUND}
    texts = [sentence_of(Numbers(report), *quote) for quote in (*first, *others)]
    assert len(set(texts)) == len(first) + len(others)
    for (row, used), words in zip((*first, *others), texts, strict=True):
        assert used is not None
        assert "95 % confidence" in words
        assert "resnet20 on pictures" in words
        assert ("this test set" in words) == (used.claim is Claim.TEST_SET)
        assert ("clean-correct" in words) == (row.metric not in (Metric.ACCURACY, *_RELATIVE))
        assert ("2/255" in words) == (row.radius is not None and row.radius < 8 / 255)


_RELATIVE = (Metric.NORMALISED_ACCURACY,)


def test_the_page_holds_the_sentences_once_and_escaped(report: Report) -> None:
    text = render(report)
    listed = text.split('id="quotes"')[1].split("</ul>")[0]
    assert listed.count("<li>") == len(table_rows(report))
    assert text.count('id="quotes"') == 1
    content = json.loads(report.to_json())
    found = re.findall(r'data-pointer="/numbers/(\d+)/value"[^>]*>([^<]*)<', listed)
    assert len(found) > 5
    for place, number in found:
        assert percent(content["numbers"][int(place)]["value"]) == number
    named = report.classifier.model_copy(update={"name": MARKUP})
    assert MARKUP not in render(report.model_copy(update={"classifier": named}))


def subject(c: float | None = 10.0, **facts: Any) -> BoundSubject:
    given = {"source": "uniform", "reference": "uniform", "noise_set": "ratio", "sees_input": True}
    return BoundSubject.model_validate({**given, "density_ratio": c, **facts})


def bound(c: float = 10.0, value: float = 0.6, **facts: Any) -> Number:
    interval = StatedInterval(low=value, high=1.0, method="exact", claim=Claim.TEST_SET)
    return Number(
        subject=subject(c, **facts), metric=Metric.BOUND, value=value, confidence=0.95,
        direction=Direction.LOWER_BOUND, intervals=(interval,),
    )  # fmt: skip


def test_what_a_ratio_covers_is_stated_per_coordinate() -> None:
    report = made_report(only="noise")[0]
    dimensions = math.prod(report.data.shape)
    text = coverage(report, subject())
    assert f"In {dimensions:,} dimensions 10 times is {10 ** (1 / dimensions):.3f} times" in text
    assert f"a box of {0.1 ** (1 / dimensions):.3f} of the radius is covered" in text
    assert "Gaussian noise, clipped at the edge of the budget, never is" in text
    assert "radius" not in coverage(report, subject(reference="laplace"))
    assert coverage(report, subject(None, noise_set="tv", size=0.05)) == ""
    assert coverage(report, subject(1.0)) == ""
    large = report.model_copy(
        update={"data": report.data.model_copy(update={"shape": (3, 32, 32)})}
    )
    assert "1.00075 times per coordinate" in coverage(large, subject())
    assert "a box of 0.99925 of the radius" in coverage(large, subject())


def test_the_line_states_the_largest_ratio_with_something_to_state() -> None:
    report = made_report(only="noise")[0]
    rows = (bound(2.0, value=0.9), bound(10.0, value=0.6), bound(100.0, value=0.0))
    with_bounds = report.model_copy(update={"numbers": (*report.numbers, *rows)})
    row = stated_bound(with_bounds)
    assert row is not None
    assert row.bound is not None
    assert row.bound.density_ratio == 10
    line = at_least_line(Numbers(with_bounds), row)
    assert line.startswith(
        "at least 60.0 % with 95 % confidence under all noise whose density is at most 10 times that"
        " of uniform noise, for this test set."
    )
    assert stated_bound(report) is None


def test_noise_that_does_not_see_the_input_is_beside_it() -> None:
    report = made_report(only="noise")[0]
    rows = bound(), bound(source="bound:patterns=9", sees_input=False, value=0.8)
    both = report.model_copy(update={"numbers": (*report.numbers, *rows)})
    row = stated_bound(both)
    assert row is not None
    assert row.bound is not None
    assert row.bound.sees_input
    assert "if the noise does not see the input: at least 80.0 %" in at_least_line(
        Numbers(both), row
    )


@pytest.fixture(scope="module")
def assessed() -> nppr.Report:
    return nppr.assess(sources="gaussian,uniform", measure=nppr.Measure(inputs=40, draws=20))


def test_every_report_with_fixed_noise_has_the_line(assessed: nppr.Report) -> None:
    text = " ".join(as_text(assessed, 80).split())
    assert text.count("at least") >= 2
    assert "under all noise whose density is at most 10 times that of uniform noise" in text
    (table,) = terminal_tables(assessed)
    assert not any("c=10" in cell.text for row in table.rows for cell in row)
    assert [row.name for row in bounds_of(assessed)] == [
        f"uniform:{label}" for label in ("c=2", "c=10", "c=2:d=0.01", "tv=0.05")
    ]
    sources = {row.source for row in assessed.numbers if row.metric is Metric.BOUND}
    assert sources == {"gaussian", "uniform"}


def test_the_line_takes_no_call_of_the_classifier(
    assessed: nppr.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noise, "read", Source.read)
    without = nppr.assess(sources="gaussian,uniform", measure=nppr.Measure(inputs=40, draws=20))
    rows = [row for row in assessed.numbers if row.metric is not Metric.BOUND]
    assert list(without.numbers) == rows
    assert {row.calls for row in assessed.numbers if row.metric is Metric.BOUND} == {
        row.calls for row in without.numbers if row.metric is Metric.PR
    }
