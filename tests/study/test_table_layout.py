from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nppr.core.tally import Direction
from nppr.errors import SpecError
from nppr.study.graph import Chain, StudyCell
from nppr.study.plan import plan
from nppr.study.study_file import FitEntry, Place, TableEntry, study_from
from nppr.study.study_records import StudyRecord, StudyValue
from nppr.study.table_layout import make_table, require_tables
from study.toys import TOY, toy

CHAIN = Chain("a", "a", "linf", 0.1, None, None, "margin", None, 0, FitEntry())


def record(value: float, seed: int = 0, fit_seed: int | None = None, **place: Any) -> StudyRecord:
    chain = None if fit_seed is None else replace(CHAIN, seed=fit_seed)
    measure = f"{place} {seed} {fit_seed}"
    cell = StudyCell(Place(**place), seed, measure, clean="c", draws=2, chain=chain)
    normalised = StudyValue(value, (value - 0.1, value + 0.1))
    others = {"accuracy": StudyValue(0.9), "seconds": StudyValue(2.0)}
    return StudyRecord(cell, Path(), {"normalised": normalised, **others})


def table(content: dict[str, Any], records: list[StudyRecord]) -> Any:
    entry = TableEntry.model_validate({"name": "t", "rows": ["classifier"], **content})
    return make_table(entry, [each.place for each in records], records)


def test_mean_and_standard_deviation_over_seeds() -> None:
    records = [record(v, seed, classifier="a") for seed, v in enumerate((0.5, 0.6, 0.7))]
    (row,) = table({"columns": [{}, {"value": "accuracy"}]}, records).numbers
    assert row[0].mean == pytest.approx(60)
    assert row[0].std == pytest.approx(10)
    assert (row[0].low, row[0].high) == pytest.approx((40, 60))
    assert row[0].text(1) == "60.0 ± 10.0 (40.0-60.0)"
    assert row[1].text(1) == "90.0"  # the same for all seeds


def test_the_spread_over_fit_seeds_is_beside_the_first_fit() -> None:
    records = [
        record(value, seed, fit_seed, classifier="a")
        for fit_seed, values in ((4, (0.5, 0.6)), (1, (0.2, 0.3)))
        for seed, value in enumerate(values)
    ]
    ((entry,),) = table({"columns": [{}]}, records).numbers
    assert entry.text(1) == "55.0 ± 7.1 [25.0, 55.0] (40.0-60.0)"


def test_direction_and_interval_are_never_dropped() -> None:
    measured = record(0.5, classifier="a")
    value = replace(measured.values["normalised"], direction=Direction.UPPER_BOUND)
    bound = replace(measured, values={"normalised": value})
    made = table({"columns": [{"header": "NPPR"}]}, [bound]).as_table()
    for text in (made.to_md(), made.to_html("t")):
        assert "≤ 60.00 (50.00 observed)" in text
    assert r"$\leq$ 60.00 (50.00 observed)" in made.to_latex()
    (known,) = json.loads(made.to_json())
    assert (known["nppr"], known["nppr_low"], known["nppr_high"]) == pytest.approx((50, 40, 60))
    assert known["nppr_direction"] == "upper bound"


def test_rows_and_columns_by_axes_and_filters() -> None:
    records = [
        record(0.1 * number, classifier=name, source=source, radius=radius)
        for number, (name, source, radius) in enumerate(
            [("a", "x", "4"), ("a", "x", "8"), ("b", "x", "4"), ("a", "y", "4"), ("b", "y", "8")]
        )
    ]
    columns = [
        {"by": ["radius"], "where": {"source": "x"}},
        {"header": "y", "where": {"source": ["y", "z"]}, "value": "seconds"},
    ]
    made = table({"columns": columns}, records)
    assert made.labels == (("a",), ("b",))
    assert [header.text for header in made.headers] == ["4", "8", "y"]
    numbers = [[None if e is None else round(e.mean, 6) for e in row] for row in made.numbers]
    assert numbers == [[0.0, 10.0, 2.0], [20.0, None, 2.0]]


def test_a_place_without_a_record_keeps_its_row_and_column() -> None:
    records = [record(0.5, classifier="a", radius="4"), record(0.5, classifier="b", radius="8")]
    entry = TableEntry.model_validate(
        {"name": "t", "rows": ["classifier"], "columns": [{"by": ["radius"]}]}
    )
    made = make_table(entry, [each.place for each in records], records[1:])
    assert made.labels == (("a",), ("b",))
    assert len(made.headers) == 2
    assert made.numbers[0] == (None, None)


def test_the_papers_numbers_stand_beside_ours() -> None:
    paper = {"citation": "a table.", "rows": [["b", 12.5], ["a", "76.29(0.038)"]]}
    content = {"columns": [{"header": "NPPR"}, {"value": "seconds"}], "paper": paper}
    exported = table(content, [record(0.5, classifier="a")]).as_table()
    assert exported.to_md().splitlines() == [
        "| classifier | NPPR | paper | seconds |",
        "| :--- | ---: | ---: | ---: |",
        "| b |  | 12.50 |  |",
        "| a | 50.00 (40.00-60.00) | 76.29(0.038) | 2.00 |",
    ]
    assert "nppr_paper" in exported.to_csv().splitlines()[0]
    assert r"\toprule" in exported.to_latex()
    assert "Paper: a table." in exported.caption


def test_a_table_without_title_states_what_its_numbers_are() -> None:
    caption = table({"columns": [{}]}, [record(0.5, classifier="a")]).as_table().caption
    assert "accuracy under the source over all inputs / clean accuracy; fractions in %" in caption
    assert "not over inputs" in caption
    titled = table({"columns": [{}], "title": "Mine."}, [record(0.5, classifier="a")]).as_table()
    assert titled.caption == "Mine."


def test_shares_stay_shares_where_percent_is_off() -> None:
    ((entry,),) = table({"columns": [{}], "percent": False}, [record(0.5, classifier="a")]).numbers
    assert entry.mean == 0.5


def test_rows_go_by_the_first_axis_then_the_second() -> None:
    records = [record(0.5, classifier=name, source=s) for s in ("x", "y") for name in ("b", "a")]
    made = table({"rows": ["classifier", "source"], "columns": [{}]}, records)
    assert made.labels == (("b", "x"), ("b", "y"), ("a", "x"), ("a", "y"))


def test_clean_accuracy_knows_no_fit_seeds() -> None:
    records = [record(0.5, 0, seed, classifier="a") for seed in (None, 0, 1)]
    ((entry,),) = table({"columns": [{"value": "accuracy"}]}, records).numbers
    assert entry.text(1) == "90.0"


def test_a_measurement_that_stands_at_two_radii_counts_once() -> None:
    twice = record(0.7, 1, classifier="a", radius="4")
    other = replace(twice.cell, place=replace(twice.place, radius="8"))
    records = [record(0.5, 0, classifier="a"), twice, replace(twice, cell=other)]
    ((entry,),) = table({"columns": [{}]}, records).numbers
    assert entry.text(1) == "60.0 ± 14.1 (40.0-60.0)"
    assert entry.seeds == 2


ROWS = ["source", "dependency"]
COLUMN = {"by": ["radius"]}
GRID = TOY["grids"][0]


def check(columns: list[dict[str, Any]], grids: list[dict[str, Any]], **entry: Any) -> None:
    tables = [{"name": "main", "rows": ROWS, "columns": columns, **entry}]
    spec = study_from(toy(grids=grids, tables=tables))
    require_tables(spec, plan(spec))


def test_a_number_is_of_one_setting() -> None:
    check([COLUMN], [GRID])
    check([COLUMN], [{**GRID, "fit_seeds": [0, 1]}])
    check([{"value": "accuracy"}, {"value": "entropy_ratio"}], [GRID])  # not of a radius
    check([{}], [{"radii": [0.1, 0.2], "sources": ["brightness"]}])  # nor is a corruption
    check([COLUMN], [GRID, {**GRID, "seeds": [2]}])


@pytest.mark.parametrize(
    ("columns", "grids", "axes"),
    [
        ([{}], [GRID], "radius"),
        ([COLUMN], [{**GRID, "components": [2, 3]}], "components"),
        ([COLUMN], [{**GRID, "losses": ["margin", "cross-entropy"]}], "loss"),
        (
            [{"value": "entropy_ratio"}],
            [{**GRID, "fit_radii": [0.1, 0.2], "floors": [0, 0.5]}],
            "floor, fit_radius",
        ),
        ([COLUMN], [GRID, {**GRID, "draws": 7, "seeds": [2]}], "grid (and give the grids names)"),
        ([COLUMN], [GRID, {**GRID, "fit": {"calls": 640}, "name": "b"}], "grid"),
    ],
    ids=["radius", "components", "loss", "of fits", "draws", "fit"],
)
def test_a_number_that_would_mix_settings_is_refused(
    columns: list[dict[str, Any]], grids: list[dict[str, Any]], axes: str
) -> None:
    with pytest.raises(SpecError, match="one setting in each number") as caught:
        check(columns, grids)
    assert str(caught.value).endswith(f"Add them to rows, by or where: {axes}.")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"source": "unifrom"}, "Did you mean 'uniform'"),
        ({"source": ["uniform", "npr"]}, "Did you mean 'nppr'"),
        ({"radius": "1/10"}, "where.radius of table main"),
    ],
    ids=["source", "list", "radius"],
)
def test_a_filter_that_nothing_passes_is_refused(where: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        check([{**COLUMN, "where": where}], [GRID])
    assert said in str(caught.value)
    with pytest.raises(SpecError) as caught:
        check([COLUMN], [GRID], where=where)
    assert said in str(caught.value)


@pytest.mark.parametrize("row", [["uniform", "", 1, 2, 3, 4], ["uniform"]], ids=["long", "short"])
def test_rows_of_the_paper_that_are_too_long_or_too_short_are_refused(row: list[Any]) -> None:
    check([COLUMN], [GRID], paper={"citation": "x", "rows": [["uniform", "", 1, 2, 3]]})
    with pytest.raises(SpecError, match=r"must have 2 labels and at most 3 numbers"):
        check([COLUMN], [GRID], paper={"citation": "x", "rows": [row]})
