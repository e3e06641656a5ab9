"""One table in every format: the same numbers, and nothing that breaks out."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from nppr.errors import NpprError
from nppr.report.tables import FORMATS, Cell, Column, Table, latex_text, md_text
from nppr.system.records import write_whole

EVIL = "a|b & 50% $x$ #1 _y_ {z} ~^\\ <script> [q] *s*\nnext"
TABLE = Table(
    "What & why",
    (
        Column("name", "name"),
        Column("value", "value %", number=True),
        Column("interval", "interval", number=True, interval=True),
        Column("good", "good"),
        Column("empty", "empty"),
        Column("bar", "bar", terminal=100, outside=("page", "markdown", "latex", "data")),
    ),
    (
        (
            Cell.of(EVIL),
            Cell(1 / 3, "≤ 33.3 ± 1.0", strong=True),
            Cell((-0.25, 1 / 3), "-25.0 to 33.3"),
            Cell(True, "yes"),
            Cell.of(None),
            Cell.of("xx"),
        ),
        (
            Cell.of("[b"),
            Cell(None, "failed"),
            Cell(None, ""),
            Cell(False, "no"),
            Cell.of(None),
            Cell.of("x"),
        ),
    ),
)


def test_csv_has_every_digit_and_both_ends() -> None:
    first, second = csv.DictReader(io.StringIO(TABLE.to_csv()))
    assert float(first["value"]) == 1 / 3
    assert (float(first["interval_low"]), float(first["interval_high"])) == (-0.25, 1 / 3)
    assert first["name"] == " ".join(EVIL.split())
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
    assert "**≤ 33.3 ± 1.0**" in lines[2]
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
    assert r"\textbf{$\leq$ 33.3 $\pm$ 1.0} & $-$25.0 to 33.3" in rows[1]
    assert rows[2].startswith("{[}b")
    assert re.sub(r"\\[%&#]", "", text).count("%") == 0


def test_html_escapes_and_sorts_by_value() -> None:
    text = replace(TABLE, marked=1).to_html("All & more", "mine")
    assert 'aria-label="All &amp; more"' in text
    assert 'id="mine"' in text
    assert "&lt;script&gt;" in text
    assert '<td class="n" data-sort="0.3333333333333333"><strong>≤ 33.3' in text
    assert '<td class="n" data-sort="0.3333333333333333">-25.0 to 33.3</td>' in text
    assert '<td class="n" data-sort="">failed</td>' in text
    assert text.count('<tr class="headline">') == 1
    for gone in ("empty", "bar"):
        assert gone not in text


def terminal(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, record=True)
    console.print(table.to_rich(width))
    return console.export_text()


def test_a_terminal_shows_what_it_has_room_for() -> None:
    assert "bar" not in terminal(TABLE, 99)
    assert "bar" in terminal(TABLE, 100)
    assert "<= 33.3" in terminal(TABLE, 99)


@pytest.mark.parametrize("grouped", [True, False])
def test_a_rule_separates_groups(grouped: bool) -> None:
    rows = tuple((Cell.of(name),) for name in ("a", "a", "b"))
    table = Table("", (Column("n", "n"),), rows, grouped=grouped)
    found = re.findall(r'<tr class="([^"]*)">', table.to_html("t"))
    assert found == ["", "", "first" if grouped else ""]


@given(st.text())
def test_any_text_is_safe_in_latex(text: str) -> None:
    found = latex_text(text)
    known = r"\\text[a-z]+\{\}|\\[{}$&#%_]|\$\\(pm|leq|geq)\$|\{[\[\]*]\}"
    assert not re.search(r"[\\{}$&#%_^~<>|\"`\n]", re.sub(known, "", found))


@given(st.text())
def test_any_text_stays_in_its_markdown_cell(text: str) -> None:
    found = md_text(text)
    assert not re.search(r"[|<>`*_\n]", re.sub(r"\\[\\|`*_\[\]<>#]", "", found))


def test_every_format_ends_its_last_line() -> None:
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


@pytest.mark.parametrize("name", ["=1+1", "+1+1|a", "-2", "@SUM(A1)", "\t=1", "\x1b=1"])
def test_no_name_is_a_formula_of_a_spreadsheet(name: str) -> None:
    table = Table(
        "", (Column("name", "name"), Column("n", "n")), ((Cell.of(name), Cell(-1.5, "")),)
    )
    (line,) = csv.DictReader(io.StringIO(table.to_csv()))
    assert line["name"][0] == "'"
    assert line["n"] == "-1.5"
