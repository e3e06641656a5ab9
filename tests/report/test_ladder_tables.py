"""The ladder: every rung in its place, with what was found and how well it was searched for."""

from __future__ import annotations

import json

import pytest

from nppr.core.tally import Metric
from nppr.noise import Dependency
from nppr.noise.structures import ANY, STATIONARY, STRUCTURES, WHITE, WITHOUT_INPUT
from nppr.report import Report
from nppr.report.findings import headline_of
from nppr.report.ladder_tables import (
    ladder_table,
    search_table,
    steps_of,
    story_text,
    threat_table,
)
from nppr.report.printed_numbers import Numbers, percent
from nppr.report.results_table import as_text, notes_of, terminal_tables
from nppr.report.tables import FORMATS
from report.page.made_runs import (
    CELLS,
    failed,
    made_report,
    with_ladder,
    with_structures,
    won_by,
)

NAMES = ["independent", "label", "joint", "per-input"]
ROWS = [
    "PR, gaussian", "nothing (independent)", "the class (label)", "class and features (joint)",
    "the input (per-input)", "AR, merged",
]  # fmt: skip


@pytest.fixture(scope="module")
def report() -> Report:
    return with_ladder(made_report()[0])


def test_it_goes_from_known_noise_down_to_attacks(report: Report) -> None:
    steps = steps_of(report)
    assert [step.name for step in steps] == ROWS
    for step in steps[1:-1]:
        assert set(step.numbers) == {(0.0, ANY), (0.5, ANY)}
        assert step.rung is not None
        assert step.threat == step.rung.threat_of()
        rungs = {row.learned.rung for row in step.numbers.values() if row.learned}
        assert rungs == {step.rung}
    assert [step.rung for step in steps] == [None, *map(Dependency, NAMES), None]
    assert [list(steps[end].numbers) for end in (0, -1)] == [[(0.0, ANY)], [(0.0, ANY)]]
    assert len({step.threat for step in steps}) == len(ROWS)


def test_without_learned_noise_there_is_none() -> None:
    for only in ("noise", "attack", "bound", "failed"):
        assert steps_of(made_report(only=only)[0]) == []
        assert len(terminal_tables(made_report(only=only)[0])) == 1


def test_cells_state_what_may_be_claimed(report: Report) -> None:
    table, numbers = ladder_table(report), Numbers(report)
    for step, cells in zip(steps_of(report), table.rows, strict=True):
        for cell, floor in zip(cells[1:], (0.0, 0.5), strict=True):
            row = step.numbers.get((floor, ANY))
            assert cell.value == (row.value if row else None)
            claim = numbers.claim(row, cell=True, kind=str) if row else ""
            assert cell.text == claim.replace(" observed)", ")")
            assert cell.strong == (row is not None and row is headline_of(report))
    assert table.marked == NAMES.index("joint") + 1
    for render in FORMATS.values():
        assert "per-input" in render(table)
    records = json.loads(table.to_json())
    assert records[0]["any, rho 0.5"] is None
    assert [record["rung"] for record in records[1:-1]] == NAMES
    assert table.to_html("l").count("data-pointer") == sum(
        (2 if row.metric is not Metric.PR else 3)
        for step in steps_of(report)
        for row in step.numbers.values()
    )


def test_the_lowest_source_of_a_set_is_in_its_cell() -> None:
    report = won_by("gaussian", made_report()[0])
    [joint] = [step for step in steps_of(report) if step.rung is Dependency.JOINT]
    assert joint.numbers[0.0, ANY].with_references
    assert not joint.numbers[0.5, ANY].with_references


def test_a_rung_that_failed_keeps_its_place(report: Report) -> None:
    gone = failed("nppr", Metric.NPPR, "no memory", rung=Dependency.LABEL)
    rows = [row for row in report.numbers if row.subject.noise != "nppr:label"]
    lacking = report.model_copy(update={"numbers": (*rows, gone)})
    [cells] = [row for row in ladder_table(lacking).rows if row[0].value == "label"]
    assert cells[1].text == "failed"


def test_the_searches_are_those_of_the_report(report: Report) -> None:
    found = json.loads(search_table(report).to_json())
    assert [(entry["rho"], entry["rung"]) for entry in found] == [
        (floor, rung) for floor in (0.0, 0.5) for rung in NAMES
    ]
    rungs = {(rung.floor, rung.dependency.value): rung for rung in report.ladder}
    for entry in found:
        rung = rungs[entry["rho"], entry["rung"]]
        for field in ("value", "calls", "fit", "smaller_radius", "select_inputs"):
            assert entry[field] == getattr(rung, field)
        assert rung.curve is not None
        assert (entry["rounds"], entry["end"]) == (rung.curve.rounds[-1], "maximum")
        assert entry["strongest"] == rung.strongest_value
        assert entry["spread"] == ("-" if rung.spread is None else rung.spread)
    text = search_table(report).to_md()
    assert "| 10.0 |" in text
    assert "50.0, 40.0" in text
    assert "20/input" in text
    assert "gaussian 85.0" in text


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_it_first(report: Report, width: int) -> None:
    lines = as_text(report, width).splitlines()
    assert max(map(len, lines)) <= width
    starts = [next(i for i, line in enumerate(lines) if word in line) for word in (
        "resnet20 on pictures", "The ladder", "nothing of the input", "How well", "All other results",
    )]  # fmt: skip
    assert starts == sorted(starts)
    assert not any("NPPR  nppr" in line for line in lines)  # the ladder has them
    assert len([line for line in lines if line.startswith(" nothing (independent)")]) == 2
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


@pytest.fixture(scope="module")
def cells() -> Report:
    return with_structures(made_report()[0])


def test_a_column_per_structure(cells: Report) -> None:
    table = ladder_table(cells)
    assert [column.heading for column in table.columns] == [
        "the noise knows",
        WHITE,
        STATIONARY,
        ANY,
    ]
    values = {
        (row[0].value, column.name): cell.value
        for row in table.rows
        for column, cell in zip(table.columns[1:], row[1:], strict=True)
    }
    filled = {place for place, value in values.items() if value is not None}
    learned = {(rung.value, structure) for rung, structure in CELLS} | {
        (name, ANY) for name in NAMES
    }
    assert filled == learned | {("PR, gaussian", WHITE), ("AR, merged", ANY)}
    for rung, structure in CELLS:
        row = cells.headline(f"nppr:{rung}:{structure}", Metric.NPPR)
        assert row is not None
        assert values[rung.value, structure] == row.value


def test_known_noise_that_is_not_white_is_in_the_last_column(cells: Report) -> None:
    own = [
        row.with_subject(source="mine").model_copy(update={"value": 0.01})
        for row in cells.numbers
        if row.source == "gaussian"
    ]
    more = cells.model_copy(update={"numbers": (*cells.numbers, *own)})
    assert [(step.name, list(step.numbers)) for step in steps_of(more)[:1]] == [
        ("PR, mine", [(0.0, ANY)])
    ]


def test_every_set_has_an_example_and_empty_cells_a_reason(cells: Report) -> None:
    rows = dict([cell.text for cell in row] for row in threat_table(cells).rows)
    for name in (WHITE, STATIONARY, ANY):
        assert rows[name] == STRUCTURES[name].example
    assert rows["the class (label)"] == Dependency.LABEL.threat_of()
    assert rows["empty cells"] == WITHOUT_INPUT
    assert "empty cells" not in dict(
        [cell.text for cell in row] for row in threat_table(with_ladder(made_report()[0])).rows
    )


def test_the_story_tells_what_the_noise_is_made_of(cells: Report) -> None:
    def left(source: str, metric: Metric = Metric.NPPR) -> tuple[str, str]:
        row = cells.headline(source, metric)
        assert row is not None
        assert row.value is not None
        assert row.quoted is not None
        return percent(row.value), percent(row.quoted.high, "at-most")

    known, _ = left("gaussian", Metric.PR)
    white, stationary, fixed = (
        "{} % (at most {} %)".format(*left(f"nppr:independent{end}"))
        for end in (":white", ":stationary", "")
    )
    expected = (
        f"Known noise (gaussian) leaves {known} % of the correct answers correct. The worst white noise"
        f" found leaves {white}, the worst stationary noise {stationary}, and the worst noise of"
        f" any structure {fixed}. Each upper end holds with 95 % confidence on its own."
    )
    assert story_text(Numbers(cells)) == expected
    assert expected in " ".join(as_text(cells, 120).split())
    assert story_text(Numbers(with_ladder(made_report()[0]))) == ""


def test_the_searches_of_cells_name_their_structure(cells: Report) -> None:
    found = json.loads(search_table(cells).to_json())
    order = [(rung.value, structure) for rung, structure in CELLS]
    order = sorted(order, key=lambda each: STRUCTURES[each[1]].path.__len__())
    assert [(entry["rung"], entry["structure"]) for entry in found] == [
        *order, *((name, ANY) for name in NAMES)
    ]  # fmt: skip
    assert "rho" not in found[0]
