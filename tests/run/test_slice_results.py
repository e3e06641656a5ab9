"""Rows by slice: means of the inputs of each slice, intervals that hold together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import nppr
from helpers import half_classifier, two_class_data
from nppr.report.findings import worst_slices
from nppr.report.page import render
from nppr.report.results_table import slices_table, worst_words
from nppr.statistics.betting import betting


def sliced() -> nppr.Report:
    data = two_class_data(200)
    sites = ["near" if at % 4 else "far & <away>" for at in range(200)]
    return nppr.assess(
        half_classifier(),
        replace(data, slices={"site": sites}),
        budget=nppr.Budget.linf(0.3),
        sources="uniform",
        measure=nppr.Measure(draws=8),
        run=nppr.Run(batch_size=64),
    )


def test_a_slice_is_read_off_the_lines_of_its_inputs() -> None:
    report = sliced()
    lines = report.per_input.of("uniform")
    rows = {row.name: row for row in report.slices if row.column == "site"}
    assert set(rows) == {"near", "far & <away>"}
    own = (lines["index"] % 4 == 0) & (lines["clean_correct"] == 1)
    rates = (lines["correct"] / lines["draws"])[own]
    far = rows["far & <away>"]
    assert far.value == pytest.approx(rates.mean())
    assert far.inputs == own.sum()
    together = betting(rates, 1 - 0.05 / 2, report.seed)
    assert (far.low, far.high) == (together.low, together.high)
    classes = [row for row in report.slices if row.column == "class"]
    assert sum(row.inputs for row in classes) == (lines["clean_correct"] == 1).sum()
    assert [row.value for row in classes] == sorted(row.value for row in classes)


def test_the_worst_slice_is_named_on_page_and_table() -> None:
    report = sliced()
    worst = worst_slices(report)["site"]
    assert worst.value == min(row.value for row in report.slices if row.column == "site")
    assert f"site {worst.name}" in worst_words(report)
    assert worst_words(report) in report.table()
    page = render(report)
    assert 'id="slice-table"' in page
    assert "far & <away>" not in page
    table = slices_table(report)
    assert [row[0].value for row in table.rows] == ["site", "site"]
    assert np.isclose(float(str(table.rows[0][2].value)), worst.value)
    without = report.model_copy(update={"slices": ()})
    assert 'id="slice-table"' not in render(without)
    assert worst_words(without) == ""
