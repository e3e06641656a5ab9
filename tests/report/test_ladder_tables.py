"""The ladder: every rung in its place, with what was found and how well it was searched for."""

from __future__ import annotations

import json

import pytest

from nppr.core.tally import Metric
from nppr.noise import Dependency
from nppr.report import Report
from nppr.report.findings import headline_of
from nppr.report.ladder_tables import ladder_table, search_table, steps_of, threat_table
from nppr.report.printed_numbers import Numbers
from nppr.report.results_table import as_text, notes_of, terminal_tables
from nppr.report.tables import FORMATS
from report.page.made_runs import failed, made_report, with_ladder, won_by

ROWS = ["PR, gaussian", "independent", "label", "joint", "per-input", "AR, merged"]


@pytest.fixture(scope="module")
def report() -> Report:
    return with_ladder(made_report()[0])


def test_it_goes_from_known_noise_down_to_attacks(report: Report) -> None:
    steps = steps_of(report)
    assert [step.name for step in steps] == ROWS
    for step in steps[1:-1]:
        assert set(step.numbers) == {0.0, 0.5}
        assert step.threat == Dependency(step.name).threat_of()
        rungs = {row.learned.rung for row in step.numbers.values() if row.learned}
        assert rungs == {Dependency(step.name)}
    assert [list(steps[end].numbers) for end in (0, -1)] == [[0.0], [0.0]]
    assert len({step.threat for step in steps}) == len(ROWS)


def test_without_learned_noise_there_is_none() -> None:
    for only in ("noise", "attack", "bound", "failed"):
        assert steps_of(made_report(only=only)[0]) == []
        assert len(terminal_tables(made_report(only=only)[0])) == 1


def test_cells_state_what_may_be_claimed(report: Report) -> None:
    table, numbers = ladder_table(report), Numbers(report)
    for step, cells in zip(steps_of(report), table.rows, strict=True):
        for cell, floor in zip(cells[1:3], (0.0, 0.5), strict=True):
            row = step.numbers.get(floor)
            assert cell.value == (row.value if row else None)
            assert cell.text == (numbers.claim(row, cell=True, kind=str) if row else "")
            assert cell.strong == (row is not None and row is headline_of(report))
    assert table.marked == ROWS.index("joint")
    for render in FORMATS.values():
        assert "per-input" in render(table)
    assert json.loads(table.to_json())[0]["rho=0.5"] is None
    assert table.to_html("l").count("data-pointer") == sum(
        (2 if row.metric is not Metric.PR else 3)
        for step in steps_of(report)
        for row in step.numbers.values()
    )


def test_the_lowest_source_of_a_set_is_in_its_cell() -> None:
    report = won_by("gaussian", made_report()[0])
    [joint] = [step for step in steps_of(report) if step.name == "joint"]
    assert joint.numbers[0.0].with_references
    assert not joint.numbers[0.5].with_references


def test_a_rung_that_failed_keeps_its_place(report: Report) -> None:
    gone = failed("nppr", Metric.NPPR, "no memory", rung=Dependency.LABEL)
    rows = [row for row in report.numbers if row.subject.noise != "nppr:label"]
    lacking = report.model_copy(update={"numbers": (*rows, gone)})
    [cells] = [row for row in ladder_table(lacking).rows if row[0].text == "label"]
    assert cells[1].text == "failed"


def test_the_searches_are_those_of_the_report(report: Report) -> None:
    found = json.loads(search_table(report).to_json())
    assert [(entry["rho"], entry["rung"]) for entry in found] == [
        (floor, rung) for floor in (0.0, 0.5) for rung in ROWS[1:-1]
    ]
    rungs = {(rung.floor, rung.dependency.value): rung for rung in report.ladder}
    for entry in found:
        rung = rungs[entry["rho"], entry["rung"]]
        for field in ("value", "calls", "half", "full", "fit", "smaller_radius", "select_inputs"):
            assert entry[field] == getattr(rung, field)
        assert entry["strongest"] == rung.strongest_value
        assert entry["spread"] == ("-" if rung.spread is None else rung.spread)
    text = search_table(report).to_md()
    assert "| 10.0 |" in text
    assert "20/input" in text
    assert "gaussian 85.0" in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_it_first(report: Report, width: int) -> None:
    lines = as_text(report, width).splitlines()
    assert max(map(len, lines)) <= width
    starts = [next(i for i, line in enumerate(lines) if word in line) for word in (
        "resnet20 on pictures", "The ladder", "sensor noise", "How well", "All other results",
    )]  # fmt: skip
    assert starts == sorted(starts)
    assert not any("NPPR  nppr" in line for line in lines)  # the ladder has them
    assert len([line for line in lines if line.startswith(" independent")]) == 2
    assert any(line.startswith("spread ") for line in lines)
    assert threat_table(report).to_rich(80).show_header is False


def test_names_hold_no_pictures(report: Report) -> None:
    flagged = report.flags[0].model_copy(update={"source": "nppr:label:floor=0.5"})
    text = as_text(report.model_copy(update={"flags": (flagged,)}), 80)
    assert "nppr:label:floor=0.5" in text


def test_a_flag_of_several_rungs_is_one_line(report: Report) -> None:
    made = report.flags[0].model_copy(update={"id": "still-falling"})
    flags = [
        made.model_copy(update={"source": name, "message": f"{what}: worse noise is near"})
        for name, what in {"nppr:label": "9 %", "nppr:joint": "7 %"}.items()
    ]
    text = notes_of(report.model_copy(update={"flags": tuple(flags)}))
    line = "! still-falling: nppr:label, 9 %; nppr:joint, 7 %: worse noise is near"
    assert line in text.splitlines()
