"""Tables as Markdown, LaTeX, CSV and JSON: the same numbers, and nothing that breaks out."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nppr.assess import assess
from nppr.errors import NpprError
from nppr.report import Report
from nppr.report.exports import (
    FORMATS,
    Cell,
    Column,
    Table,
    formats_of,
    latex_text,
    md_text,
    table_of,
    write_whole,
)
from nppr.report.schema import failed
from nppr.report.tables import as_text
from nppr.types import Metric

EVIL = "a|b & 50% $x$ #1 _y_ {z} ~^\\ <script> [q] *s*\nnext"
TABLE = Table(
    "What & why",
    (
        Column("name", "name"),
        Column("value", "value %", number=True),
        Column("interval", "interval", number=True, interval=True),
        Column("good", "good"),
        Column("empty", "empty"),
    ),
    (
        (
            Cell.of(EVIL),
            Cell(1 / 3, "33.3 ± 1.0", strong=True),
            Cell((-0.25, 1 / 3), "-25.0 to 33.3"),
            Cell(True, "yes"),
            Cell.of(None),
        ),
        (Cell.of("[b"), Cell(None, "failed"), Cell(None, ""), Cell(False, "no"), Cell.of(None)),
    ),
)


@pytest.fixture(scope="module")
def report() -> Report:
    return assess(inputs=60, draws=8, sources="uniform,gaussian:scale=3,pgd:steps=3")


def test_csv_has_every_digit_and_both_ends() -> None:
    first, second = csv.DictReader(io.StringIO(TABLE.to_csv()))
    assert float(first["value"]) == 1 / 3
    assert (float(first["interval_low"]), float(first["interval_high"])) == (-0.25, 1 / 3)
    assert first["name"] == EVIL
    assert first["good"] == "true"
    assert (second["value"], second["interval_low"], second["empty"]) == ("", "", "")


def test_json_has_the_values() -> None:
    first, second = json.loads(TABLE.to_json())
    assert first == {
        "name": EVIL, "value": 1 / 3, "interval_low": -0.25, "interval_high": 1 / 3, "good": True,
        "empty": None,
    }  # fmt: skip
    assert second["value"] is None


def test_markdown_keeps_its_columns() -> None:
    lines = TABLE.to_md().splitlines()
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [5] * 4
    assert lines[1] == "| :--- | ---: | ---: | :--- |"
    assert "**33.3 ± 1.0**" in lines[2]
    assert r"\<script\>" in lines[2]
    assert "empty" not in lines[0]


def test_latex_is_booktabs_and_keeps_its_columns() -> None:
    text = TABLE.to_latex()
    order = [r"\begin{table}", r"\caption{What \& why}", r"\begin{tabular}{lrrl}", r"\toprule",
             r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}"]  # fmt: skip
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3
    for row in rows:
        assert len(re.findall(r"(?<!\\)&", row)) == 3
    assert r"\textbf{33.3 $\pm$ 1.0} & $-$25.0 to 33.3" in rows[1]
    assert rows[2].startswith("{[}b")
    assert re.sub(r"\\[%&#]", "", text).count("%") == 0


@given(st.text())
def test_any_text_is_safe_in_latex(text: str) -> None:
    found = latex_text(text)
    known = r"\\text[a-z]+\{\}|\\[{}$&#%_]|\$\\(pm|leq|geq)\$|\{[\[\]*]\}"
    assert not re.search(r"[\\{}$&#%_^~<>|\"`\n]", re.sub(known, "", found))


@given(st.text())
def test_any_text_stays_in_its_markdown_cell(text: str) -> None:
    found = md_text(text)
    assert not re.search(r"[|<>`*_\n]", re.sub(r"\\[\\|`*_\[\]<>#]", "", found))


def test_numbers_of_a_run_are_those_of_the_console(report: Report) -> None:
    table = table_of(report)
    console = as_text(report, 120)
    assert [row[0].value for row in table.rows] == ["accuracy", "AR", "AR", "PR", "PR"]
    for row in table.rows:
        found = report.headline(str(row[1].value), Metric(str(row[0].value)))
        assert found is not None
        assert row[2].value == found.value
        assert row[3].value == (found.low, found.high)
        assert row[2].text.removeprefix("≤ ") in console
        assert row[3].text in console
        assert row[4].text.removeprefix("≤ ") in console
    assert [row[2].text.startswith("≤") for row in table.rows] == [False, True, True, False, False]
    ratio = report.headline("uniform", Metric.NORMALISED_ACCURACY)
    assert ratio is not None
    [uniform] = [row for row in table.rows if row[1].value == "uniform"]
    assert uniform[5].value == ratio.value
    assert (uniform[7].value, uniform[8].text) == (8, "480")
    assert (uniform[9].value, uniform[9].text) == ("the population", "the population")
    assert uniform[10].value == "approximate-interval"


def test_a_failed_source_has_a_row_that_says_why(report: Report) -> None:
    row = failed("broken", Metric.PR, 0.95, "why | not")
    table = table_of(report.model_copy(update={"results": (*report.results, row)}))
    assert [cell.text for cell in table.rows[-1]] == [
        "PR", "broken", "failed", "", "", "", "", "", "", "", "", "why | not",
    ]  # fmt: skip
    assert "error" in table.to_md()
    assert "error" not in table_of(report).to_md()
    assert "error" in table_of(report).to_csv()


def test_a_stress_is_a_loss() -> None:
    found = table_of(assess(inputs=40, draws=4, sources="stress:q=2"))
    [row] = [row for row in found.rows if row[0].value == "stress"]
    assert isinstance(row[2].value, float)
    assert row[2].text == f"{row[2].value:.3g}"


def test_formats_are_named() -> None:
    assert formats_of("md, csv,md", FORMATS) == ("md", "csv")
    with pytest.raises(NpprError, match=r"`format` must be one of csv, json, latex, md, got 'mdd'"):
        formats_of("mdd", FORMATS)
    assert all(render(TABLE).endswith("\n") for render in FORMATS.values())


def test_files_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.md"
    write_whole(path, "é")
    assert path.read_bytes() == "é".encode()
    write_whole(path, b"again")
    assert path.read_bytes() == b"again"
    assert [each.name for each in path.parent.iterdir()] == ["table.md"]
    with pytest.raises(NpprError, match="`out` must be a place that can be written"):
        write_whole(path / "below", "")
