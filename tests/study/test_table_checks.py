from __future__ import annotations

from typing import Any

import pytest

from nppr.errors import SpecError
from nppr.study.plan import plan
from nppr.study.read import study_from
from nppr.study.table_checks import require_tables
from study.toys import TOY, toy

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
