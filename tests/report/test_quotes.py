"""Every number has a sentence, and a sentence has its scope."""

from __future__ import annotations

import json
import re

import pytest

from helpers import stated
from nppr.core.tally import Claim, Metric
from nppr.report import Number, Report
from nppr.report.findings import table_rows
from nppr.report.page import render
from nppr.report.printed_numbers import Numbers, percent
from nppr.report.quotes import quoted_rows, sentence_of
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
        " its true label, rho 0.5), the fraction of correct draws is"
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
