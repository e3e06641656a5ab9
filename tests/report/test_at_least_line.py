"""The line that states what holds at least, and what it covers."""

from __future__ import annotations

import math

import pytest

import nppr
from nppr.core.tally import Claim, Direction, Metric
from nppr.report.at_least_line import at_least_line, coverage, stated_bound
from nppr.report.findings import bounds_of
from nppr.report.model import Result
from nppr.report.numbers import Numbers
from nppr.report.results_table import as_text, terminal_tables
from nppr.sources.base import Source
from nppr.sources.fixed import Noise
from report.page.made_runs import made_report


def bound(c: float | None = 10.0, **facts: object) -> Result:
    given = {
        "source": "uniform", "metric": Metric.BOUND, "value": 0.6, "low": 0.6, "high": 1.0,
        "confidence": 0.95, "method": "exact", "claim": Claim.TEST_SET, "noise_set": "ratio",
        "direction": Direction.LOWER_BOUND, "density_ratio": c, "reference": "uniform",
        "sees_input": True, **facts,
    }  # fmt: skip
    return Result.model_validate(given)


def test_what_a_ratio_covers_is_stated_per_coordinate() -> None:
    report = made_report(only="noise")[0]
    dimensions = math.prod(report.data.shape)
    text = coverage(report, bound())
    assert f"In {dimensions:,} dimensions 10 times is {10 ** (1 / dimensions):.3f} times" in text
    assert f"a box of {0.1 ** (1 / dimensions):.3f} of the radius is covered" in text
    assert "Gaussian noise, clipped at the edge of the budget, never is" in text
    assert "radius" not in coverage(report, bound(reference="laplace"))
    assert coverage(report, bound(None, noise_set="tv", size=0.05)) == ""
    assert coverage(report, bound(1.0)) == ""
    large = report.model_copy(
        update={"data": report.data.model_copy(update={"shape": (3, 32, 32)})}
    )
    assert "1.00075 times per coordinate" in coverage(large, bound())
    assert "a box of 0.99925 of the radius" in coverage(large, bound())


def test_the_line_states_the_largest_ratio_with_something_to_state() -> None:
    report = made_report(only="noise")[0]
    rows = (bound(2.0, value=0.9), bound(10.0, value=0.6), bound(100.0, value=0.0))
    with_bounds = report.model_copy(update={"results": (*report.results, *rows)})
    row = stated_bound(with_bounds)
    assert row is not None
    assert row.density_ratio == 10
    line = at_least_line(Numbers(with_bounds), row)
    assert line.startswith(
        "at least 60.0 % with 95 % confidence under all noise whose density is at most 10 times that"
        " of uniform noise, for this test set."
    )
    assert stated_bound(report) is None


def test_noise_that_does_not_see_the_input_is_beside_it() -> None:
    report = made_report(only="noise")[0]
    rows = bound(), bound(source="bound:patterns=9", sees_input=False, value=0.8)
    both = report.model_copy(update={"results": (*report.results, *rows)})
    row = stated_bound(both)
    assert row is not None
    assert row.sees_input
    assert "if the noise does not see the input: at least 80.0 %" in at_least_line(
        Numbers(both), row
    )


@pytest.fixture(scope="module")
def report() -> nppr.Report:
    return nppr.assess(sources="gaussian,uniform", measure=nppr.Measure(inputs=40, draws=20))


def test_every_report_with_fixed_noise_has_the_line(report: nppr.Report) -> None:
    text = " ".join(as_text(report, 80).split())
    assert text.count("at least") >= 2
    assert "under all noise whose density is at most 10 times that of uniform noise" in text
    (table,) = terminal_tables(report)
    assert not any("c=10" in cell.text for row in table.rows for cell in row)
    assert [row.name for row in bounds_of(report)] == [
        f"uniform:{label}" for label in ("c=2", "c=10", "c=2:d=0.01", "tv=0.05")
    ]
    sources = {row.source for row in report.results if row.metric is Metric.BOUND}
    assert sources == {"gaussian", "uniform"}


def test_the_line_takes_no_call_of_the_classifier(
    report: nppr.Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noise, "read", Source.read)
    without = nppr.assess(sources="gaussian,uniform", measure=nppr.Measure(inputs=40, draws=20))
    rows = [row for row in report.results if row.metric is not Metric.BOUND]
    assert list(without.results) == rows
    assert {row.calls for row in report.results if row.metric is Metric.BOUND} == {
        row.calls for row in without.results if row.metric is Metric.PR
    }
