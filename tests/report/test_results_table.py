"""The table of results and its notes: one declaration, the same numbers everywhere."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import stated
from nppr.cli import console
from nppr.cli.measure_commands import show_report
from nppr.core.tally import Claim, Direction, Metric
from nppr.errors import SpecError
from nppr.noise import Dependency
from nppr.report import Number, Report
from nppr.report.bounds_table import bounds_table
from nppr.report.findings import table_rows
from nppr.report.model import PrecisionRecord, Width
from nppr.report.number import StressSubject
from nppr.report.page import render
from nppr.report.printed_numbers import percent
from nppr.report.results_table import (
    RESULT_COLUMNS,
    as_text,
    notes_of,
    spectrum_table,
    table_of,
    terminal_tables,
)
from nppr.report.tables import Cell, Column
from nppr.run.progress import bars
from nppr.settings import RARE_ACCURACY
from report.page.made_runs import RARE, failed, made_report, won_by


@pytest.fixture(scope="module")
def report() -> Report:
    return made_report(radii=True)[0]


def with_own(row: Number, **values: Any) -> Number:
    """The number with its own interval alone, and other values in it."""
    return row.with_intervals(stated(row).model_copy(update=values))


def with_rows(report: Report, *rows: object) -> Report:
    return report.model_copy(update={"numbers": (*report.numbers, *rows)})


def test_values_are_those_of_the_report(report: Report) -> None:
    table = table_of(report)
    places = {column.name: place for place, column in enumerate(table.columns)}
    for row, cells in zip(table_rows(report), table.rows, strict=True):
        found = {name: cells[place] for name, place in places.items()}
        assert (found["metric"].value, found["source"].value) == (row.metric.value, row.name)
        assert found["value"].value == row.value
        assert found["interval"].value == stated(row).ends
        assert found["guaranteed"].value == (row.guaranteed.ends if row.guaranteed else None)
        assert (found["inputs"].value, found["draws"].value) == (row.inputs, row.draws)
        assert found["claim"].text == stated(row).claim
        assert found["interval"].text.endswith("*") == stated(row).is_untested
    assert table.marked == [row.name for row in table_rows(report)].index("nppr:joint")


def test_the_terminal_prints_the_numbers_of_the_files(report: Report) -> None:
    lines = [" ".join(line.split()) for line in as_text(report, 120).splitlines()]
    *_, others = terminal_tables(report)
    assert len(others.rows) == len(table_of(report).rows) - 2
    for row in others.rows:
        texts = [cell.text.replace("≤", "<=").replace("≥", ">=") for cell in row[:6] if cell.text]
        assert any(line.startswith(" ".join(texts)) for line in lines), texts


def test_a_column_that_is_added_is_shown_everywhere(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = (Column("about", "what about"), lambda _, row: Cell.of(row.subject.kind))
    monkeypatch.setattr("nppr.report.results_table.RESULT_COLUMNS", (*RESULT_COLUMNS, added))
    table = table_of(report)
    for text in (table.to_md(), table.to_latex(), table.to_html("t"), report.table(130)):
        assert "what about" in text
        assert "learned" in text
    assert json.loads(table.to_json())[0]["about"] == "clean"
    assert "about" in table.to_csv().splitlines()[0].split(",")


@pytest.mark.parametrize("width", [80, 120])
def test_it_fits_the_terminal(report: Report, width: int) -> None:
    lines = report.table(width).splitlines()
    assert max(len(line) for line in lines) <= width
    assert not any("…" in line for line in lines)
    assert any("rho 0.5" in line for line in lines)
    assert any("█" in line for line in lines) == (width == 120)
    legend = [line for line in lines if re.match(r"(PR|NPPR|AR|bound|/ clean) {2,}[a-zA-Z]", line)]
    assert len(legend) == 5


def test_budget_seed_and_counts_are_named(report: Report) -> None:
    text = " ".join(report.table(120).split())
    assert "resnet20 on pictures, budget linf 8/255, seed 0" in text
    assert "120 inputs of the evaluate split, 103 of them clean-correct" in text
    assert "* approximate-interval: nppr:joint, fewer than 400 inputs" in text
    assert "grade B" in text


def test_a_failed_source_has_a_row_with_its_reason(report: Report) -> None:
    table = table_of(with_rows(report, failed("broken", Metric.PR, "why | not")))
    [cells] = [row for row in table.rows if row[1].value == "broken"]
    texts = [cell.text for cell in cells if cell.text]
    assert texts == ["PR", "broken", "failed", "failed", "why | not"], "with the short form"
    assert "error" in table.to_md()
    assert "why" not in table.to_html("t")
    assert "error" not in table_of(report).to_md()
    skipped = failed("late", Metric.PR, "no time", flags=("skipped",))
    assert "skipped" in table_of(with_rows(report, skipped)).to_md()


def test_a_stress_is_a_loss(report: Report) -> None:
    row = report.headline("uniform", Metric.PR)
    assert row is not None
    interval = stated(row).model_copy(update={"low": 2.0, "high": 3.0})
    subject = {"subject": StressSubject(source="stress", order=10.0)}
    loss = row.with_intervals(interval).model_copy(update=subject)
    rows = [
        loss.model_copy(update={"metric": Metric.STRESS, "value": 2.3456}),
        loss.model_copy(update={"metric": Metric.NORMALISED_STRESS, "value": 1.5}),
    ]
    table = table_of(with_rows(report, *rows))
    [cells] = [each for each in table.rows if each[0].value == "stress"]
    assert [cell.text for cell in cells[1:4]] == ["stress:q=10", "2.35", "2-3*"]
    assert cells[5].text == "x 1.5"
    assert cells[-1].text == ""
    assert table.columns[2].heading == "value"
    assert [cell.text for cell in cells[6:8]] == ["2.35 (2-3)", "2.35 (2-3 with 95 % confidence)"]


def test_spectrum_and_bounds_as_json(report: Report) -> None:
    spectrum = json.loads(spectrum_table(report).to_json())
    assert [entry["floor"] for entry in spectrum] == [0.0, 0.5]
    first = report.distributions[0]
    stage = first.search.stages[0].model_copy(update={"rung": Dependency.LABEL})
    search = first.search.model_copy(update={"stages": (stage,)})
    label = first.model_copy(update={"search": search})
    more = report.model_copy(update={"distributions": (label, *report.distributions)})
    assert json.loads(spectrum_table(more).to_json()) == spectrum
    row = report.headline("nppr:joint", Metric.NPPR)
    assert row is not None
    assert list(spectrum[0]) == [
        "floor", "at_most", "value", "low", "high", "realised_std", "selected",
    ]  # fmt: skip
    assert row.shown is not None
    assert spectrum[0]["at_most"] == row.shown.high
    assert (spectrum[0]["value"], spectrum[0]["low"]) == (row.value, stated(row).low)
    bounds = json.loads(bounds_table(report).to_json())
    assert [entry["density_ratio"] for entry in bounds] == [1.0, 10.0]
    found = {
        (row.bound.density_ratio, interval.claim): interval.low
        for row in report.numbers
        if row.bound and row.metric is Metric.BOUND
        for interval in row.intervals
    }
    for entry in bounds:
        ratio = entry["density_ratio"]
        assert entry["test_set"] == found[ratio, Claim.TEST_SET]
        assert entry["population"] == found[ratio, Claim.POPULATION]
        assert "estimate_with_splitting" not in entry


def test_the_console_shows_the_table_and_failures(
    report: Report, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console.out, "_file", None)
    monkeypatch.setattr(console.err, "_file", None)
    path = Path("runs", "x", "report.json")
    show_report(with_rows(report, failed("broken", Metric.PR, "why")), path)
    console.note("nppr:label:floor=0.5")
    with bars() as shown:
        shown.add_task("nppr:label:floor=0.5", total=1, note="")
        console.out.print(shown.get_renderable())
    captured = capsys.readouterr()
    assert "nppr:label:floor=0.5" in captured.out  # no picture
    assert "nppr:label:floor=0.5" in captured.err
    assert str(path) in captured.out
    assert "source 'broken' failed: why" in captured.err


def test_notes_name_reference_noise_that_was_worse(report: Report) -> None:
    text = notes_of(won_by("gaussian", report))
    assert "nppr:joint (lowest of the set): gaussian noise was worse than the learned noise" in text
    assert "(lowest of the set): " not in notes_of(report)


def test_notes_report_rare_failures_precision_and_radii(report: Report) -> None:
    precision = PrecisionRecord(
        asked=0.05, reached=True, rounds=((40, 8), (60, 32)), available_inputs=120,
        needed_inputs=None, widths={"nppr:joint": Width(half_width=0.031, between=0.1, within=0.1)},
    )  # fmt: skip
    headline = report.headline("nppr:joint", Metric.NPPR)
    assert headline is not None
    joined = with_own(headline, method="draws + splitting", high=0.1761)
    joined = joined.model_copy(update={"value": 0.167})
    changes = {"rare": (RARE,), "precision": precision}
    text = notes_of(with_rows(report, joined).model_copy(update=changes))
    assert "failures found for 0, none found by following the margin for 1, 0 out of calls" in text
    assert "an indication: largest estimate of those followed 4.4e-07" in text
    assert "guaranteed: each of them fails with probability at most 7.5e-03" in text
    assert "the other 8 count as never failing" in text
    claim = "at most 17.610 % (16.700 % observed)"
    assert f"with splitting NPPR {claim}, the population" in text
    assert text.count(f"splitting: {RARE_ACCURACY}") == 1
    assert (
        "splitting did not follow: gaussian, uniform, bound:ratio=1+10, nppr:joint:floor=0.5"
        in text
    )
    assert (
        "every PR and NPPR is within ±3.10 percentage points by the interval shown, with 60 of 120"
        in text
    )
    observed = percent(row_value(report, "gaussian"))
    assert f"at radius 2/255, 95 % confidence: gaussian {observed} % (" in text


def test_notes_at_other_radii_give_directions_and_losses(report: Report) -> None:
    nppr = report.headline("nppr:joint", Metric.NPPR)
    assert nppr is not None
    moved = nppr.with_subject(radius=0.5).model_copy(update={"value": 0.25})
    upper = with_own(moved, high=0.304)
    betting = stated(upper).model_copy(update={"method": "betting", "high": 0.321, "flags": ()})
    sure = upper.with_intervals(stated(upper), betting)
    stress = {
        "subject": StressSubject(source="stress", order=1.0, radius=0.5),
        "metric": Metric.STRESS,
        "direction": Direction.ESTIMATE,
    }
    loss = with_own(upper, low=0.2, flags=()).model_copy(update=stress)
    text = notes_of(report.model_copy(update={"other_radii": (upper, loss)}))
    first = f"at radius 0.5, 95 % confidence: {upper.name}"
    assert f"{first} at most 30.4 % (25.0 % observed), {loss.name} loss 0.25 (0.2-0.304)" in text
    text = notes_of(report.model_copy(update={"other_radii": (sure,)}))
    assert f"{first} at most 32.1 % (25.0 % observed)" in text


def test_files_state_what_may_be_claimed(report: Report) -> None:
    table = table_of(report)
    for row, entry in zip(table_rows(report), json.loads(table.to_json()), strict=True):
        used = row.shown
        assert row.value is not None
        assert used is not None
        if row.direction is Direction.UPPER_BOUND:
            shown = f"{percent(row.value)} % observed"
            claim = f"at most {percent(used.high, 'at-most')} % with 95 % confidence ({shown})"
        elif row.direction is Direction.LOWER_BOUND:
            claim = f"at least {percent(row.value, 'at-least')} % with 95 % confidence"
        else:
            ends = percent(used.low, "at-least"), percent(used.high, "at-most")
            claim = f"{percent(row.value)} % ({ends[0]}-{ends[1]} %"
            claim += " with 95 % confidence)"
        assert entry["statement"] == claim
        assert claim in table.to_md()
        assert claim in table.to_csv()


def test_latex_fits_a_paper_and_keeps_what_may_be_claimed(report: Report) -> None:
    text = table_of(report).to_latex()
    assert r"\begin{tabular}{llrr}" in text
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    assert max(map(len, body)) < 80
    rows = [row for row in table_rows(report) if row.value is not None]
    assert {row.direction for row in rows} >= set(Direction)
    for row, line in zip(rows, body, strict=True):
        used = row.shown
        assert row.value is not None
        assert used is not None
        if row.direction is Direction.UPPER_BOUND:
            assert (
                rf"$\leq$ {percent(used.high, 'at-most')} ({percent(row.value)} observed)" in line
            )
        elif row.direction is Direction.LOWER_BOUND:
            assert rf"$\geq$ {percent(row.value, 'at-least')}" in line
        else:
            ends = percent(used.low, "at-least"), percent(used.high, "at-most")
            assert f"({ends[0]}--{ends[1]})" in line


def test_no_upper_bound_is_printed_without_its_interval(report: Report) -> None:
    """The number itself was observed under the noise found; the sign belongs to the upper end."""
    table = table_of(report)
    assert table.columns[2].heading == "value %"
    for row, cells in zip(table_rows(report), table.rows, strict=True):
        assert cells[2].text.startswith("≥ ") == (row.direction is Direction.LOWER_BOUND)
        assert cells[4].text.startswith("≤ ") == (row.direction is Direction.UPPER_BOUND)
    assert "value     of AR and NPPR: observed under the noise found" in notes_of(report)
    assert "interval  of these: conditional on that noise" in notes_of(report)
    assert "conditional on" not in notes_of(made_report(only="noise")[0])


def row_value(report: Report, name: str) -> float:
    row = report.headline(name, Metric.PR)
    assert row is not None
    assert row.value is not None
    return row.value


def test_a_report_shows_itself_in_a_line(report: Report) -> None:
    text = repr(report)
    assert "\n" not in text
    assert len(text) < 400
    row = report.headline("nppr:joint", Metric.NPPR)
    assert row is not None
    assert row.shown is not None
    assert f"NPPR nppr:joint at most {percent(row.shown.high, 'at-most')} %" in text
    assert f"grade {report.grade.letter}" in text
    assert f"{report.data.inputs.evaluate:,} inputs evaluated" in text
    assert str(report) == report.table()


def test_a_frame_has_a_row_per_source_with_its_direction(report: Report) -> None:
    pytest.importorskip("pandas", reason="the extra pandas is not installed")
    frame = report.to_pandas()
    rows = table_rows(report)
    assert frame["source"].tolist()[: len(rows)] == [row.name for row in rows]
    assert frame["value"].tolist()[: len(rows)] == [row.value for row in rows]
    worst = frame[(frame["source"] == "nppr:joint") & (frame["radius"] == report.budget.radius)]
    assert worst["direction"].tolist() == ["at most"]
    assert set(frame["direction"]) <= {"at most", "at least", "estimate"}
    others = {row.radius for row in report.other_radii}
    assert others
    assert others <= set(frame["radius"])


def test_a_column_added_to_the_table_is_in_records_and_every_file(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declared once: terminal, page, files and data frame."""
    one = (Column("loudness", "loudness", number=True), lambda *_: Cell(0.5, "half"))
    two = (Column("reach", "reach", interval=True), lambda *_: Cell((0.25, 0.75), "some"))
    monkeypatch.setattr("nppr.report.results_table.RESULT_COLUMNS", (*RESULT_COLUMNS, one, two))
    records = table_of(report, other_radii=True).records()
    assert len(records) > len(table_of(report).rows) > 0
    for record in records:
        assert (record["loudness"], record["reach_low"], record["reach_high"]) == (0.5, 0.25, 0.75)
    table = table_of(report)
    assert json.loads(table.to_json())[0]["reach_high"] == 0.75
    assert "loudness,reach_low,reach_high" in table.to_csv()
    assert "half" in table.to_md()
    assert "half" in table.to_latex()
    assert "half" in render(report)


def test_a_data_frame_has_the_columns_and_values_of_the_files(report: Report) -> None:
    pytest.importorskip("pandas", reason="the extra pandas is not installed")
    frame, files = report.to_pandas(), json.loads(table_of(report).to_json())
    assert frame.columns.tolist() == list(files[0])
    assert len(frame) > len(files), "other radii"
    for at, entry in enumerate(files):
        row = frame.iloc[at].to_dict()
        assert {name: row[name] for name in ("source", "value", "low", "high", "radius")} == {
            name: entry[name] if entry[name] is not None else pytest.approx(math.nan, nan_ok=True)
            for name in ("source", "value", "low", "high", "radius")
        }
    for row, entry in zip(table_rows(report), files, strict=True):
        assert row.shown is not None
        assert (entry["low"], entry["high"]) == row.shown.ends
        assert entry["printed_method"] == row.shown.method
        assert entry["confidence"] == row.confidence
        assert entry["rung"] == (row.learned.rung if row.learned else None)


def test_without_pandas_the_extra_is_named(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SpecError, match=r"pip install 'nppr\[pandas\]'"):
        report.to_pandas()
