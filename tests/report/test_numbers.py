"""How numbers are printed: intervals outwards, and all or nothing only where it is."""

from __future__ import annotations

import re

import pytest

from nppr.core.tally import Direction, Metric
from nppr.export.claims import FiledReport, claims_of
from nppr.export.technical_documentation import technical_documentation
from nppr.report import FORMATS, Report
from nppr.report.figures.figure_style import interval
from nppr.report.number import Number
from nppr.report.page import render
from nppr.report.printed_numbers import Numbers, percent
from nppr.report.quotes import quoted_rows, sentence_of
from nppr.report.results_table import as_text, notes_of, summary_of, table_of
from nppr.study.table_layout import TableNumber
from report.page.made_runs import made_report

LOW, VALUE, HIGH = 0.12379, 0.25, 0.45612
INWARDS = ("12.4", "45.6")


def with_interval(row: Number) -> Number:
    """The row with an interval whose nearest numbers lie inside it; losses likewise."""
    if row.direction is not Direction.ESTIMATE:
        return row
    return between(row, LOW, VALUE, HIGH)


def between(row: Number, low: float, value: float, high: float) -> Number:
    """The number with these ends of all its intervals."""
    ends = {"low": low, "high": high}
    intervals = [each.model_copy(update=ends) for each in row.intervals]
    return row.with_intervals(*intervals).model_copy(update={"value": value})


@pytest.fixture(scope="module")
def report() -> Report:
    made = made_report(only="noise")[0]
    assert {row.direction for row in made.numbers} == {Direction.ESTIMATE}
    return made.model_copy(update={"numbers": tuple(map(with_interval, made.numbers))})


def printed(report: Report) -> dict[str, str]:
    """Everything that prints intervals of a report, without the attributes of elements."""
    numbers, first = Numbers(report), quoted_rows(report)[0]
    filed = FiledReport(report, "", report.model_dump(mode="json"))
    shown = {
        "terminal": as_text(report, 200),
        "notes": notes_of(report),
        "summary": summary_of(report),
        "quotes": " ".join(sentence_of(numbers, *quote) for quote in first),
        "page": re.sub(r"<svg.*?</svg>|<[^>]*>", "", render(report), flags=re.DOTALL),
        "export": technical_documentation(filed),
        "claims": " ".join(each.sentence for each in claims_of(filed)),
        "figure": interval(*first[0]),
    }
    tables = {name: make(table_of(report)) for name, make in FORMATS.items() if name != "csv"}
    return shown | {name: text for name, text in tables.items() if name != "json"}


def test_intervals_of_estimates_are_rounded_outwards_everywhere(report: Report) -> None:
    found = printed(report)
    assert {"terminal", "md", "latex", "page", "quotes", "export"} <= found.keys()
    for name, text in found.items():
        if name != "notes":
            assert "12.3" in text, name
            assert "45.7" in text, name
        assert not any(each in text for each in INWARDS), name


def test_losses_and_tables_of_studies_are_rounded_outwards(report: Report) -> None:
    loss = report.numbers[1].model_copy(update={"metric": Metric.STRESS})
    loss = between(loss, 0.12379, 0.25, 12.341)
    both = report.model_copy(update={"numbers": (*report.numbers, loss)})
    shown = [str(Numbers(both).of(loss, field)) for field in ("low", "value", "high")]
    assert shown == ["0.123", "0.25", "12.4"]
    exact = between(loss, 0.1, 0.25, 0.5)
    told = report.model_copy(update={"numbers": (exact,)})
    assert [str(Numbers(told).of(exact, field)) for field in ("low", "high")] == ["0.1", "0.5"]
    study = TableNumber(25.0, None, 1, 1, 25.0, 25.0, 12.379, 45.612, Direction.ESTIMATE)
    assert study.text(1) == "25.0 (12.3-45.7)"
    study = TableNumber(25.0, None, 1, 1, 25.0, 25.0, 12.379, 45.612, Direction.UPPER_BOUND)
    assert study.text(1) == "≤ 45.7 (25.0 observed)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "100.0"), (0.99979, "99.98"), (0.9996, "99.96"), (0.9994, "99.9"), (0.0, "0.0"),
        (0.0002, "0.02"), (0.0006, "0.1"), (1 - 1e-9, "99.9999"), (1e-9, "0.0001"), (0.5, "50.0"),
    ],
)  # fmt: skip
def test_all_is_printed_only_if_all_were_correct_and_none_only_if_none_was(
    value: float, text: str
) -> None:
    assert percent(value) == text
