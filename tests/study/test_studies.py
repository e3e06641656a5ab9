"""The studies that come with the project."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nppr.study.plan import plan
from nppr.study.study_file import read_study
from nppr.study.study_records import StudyRecord, nested_pairs
from nppr.study.table_layout import make_table, require_tables

STUDIES = Path(__file__).parents[2] / "studies"
SMALL = sorted((STUDIES / "small").glob("*.toml"))
PAPER = {
    "ablation": (1, 4, 8),
    "baselines": (1, 3, 6),
    "cross_radius": (1, 3, 4),
    "cross_radius_many": (1, 12, 4),
    "extended": (1, 36, 7),
    "feature_transfer": (1, 4, 4),
    "main": (1, 12, 8),
    "radii": (1, 6, 3),
    "robustness": (1, 21, 12),
    "training_stage": (1, 6, 2),
    "wall_clock": (1, 12, 8),
}
"""Tables, rows and numbers in a row of the paper."""


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers_stand_in_rows_and_columns_of_ours(name: str) -> None:
    spec = read_study(STUDIES / "paper" / f"{name}.toml")
    graph = plan(spec)
    assert graph.missing
    require_tables(spec, graph)
    tables, rows, numbers = PAPER[name]
    assert len(spec.tables) == tables
    (entry,) = spec.tables
    assert entry.paper is not None
    assert len(entry.paper.rows) == rows
    made = make_table(entry, [cell.place for cell in graph.cells], [])
    assert len(made.labels) == rows  # no row of the paper without one of ours, nor the other way
    assert len(made.headers) >= numbers
    assert {len(row) - len(entry.rows) for row in entry.paper.rows} == {numbers}


def test_some_numbers_of_the_paper() -> None:
    (table,) = read_study(STUDIES / "paper" / "main.toml").tables
    assert table.paper is not None
    rows = {(row[0], row[1]): row[2:] for row in table.paper.rows}
    headers = [column.header for column in table.columns]
    known = dict(zip(headers, rows["CIFAR-10", "ResNet18"], strict=True))
    assert known["accuracy"] == 87.72
    assert known["NPPR"] == "76.29(0.038)"
    assert known["PR Uniform"] == "97.21(0.034)"
    known = dict(zip(headers, rows["TinyImageNet", "WRN50"], strict=True))
    assert known["accuracy"] == 73.74
    assert known["AR PGD-3"] == "4.79(0.039)"


def test_the_same_tables_are_there_small() -> None:
    names = {path.stem for path in (STUDIES / "small").glob("*.toml")}
    small = {f"{kind}_{name}" for kind in ("digits", "resnet20") for name in PAPER}
    assert names == small | {"resnet18_paper"}


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.stem)
def test_the_small_studies_can_be_planned(path: Path) -> None:
    spec = read_study(path)
    graph = plan(spec)
    others = ("resnet",)  # their data and weights are not part of the repository
    assert path.name.startswith(others) == bool(graph.missing)
    require_tables(spec, graph)
    for entry in spec.tables:
        made = make_table(entry, [cell.place for cell in graph.cells], [])
        assert made.labels
        assert made.headers


def test_the_extended_ablation_has_all_nested_pairs() -> None:
    graph = plan(read_study(STUDIES / "small" / "digits_extended.toml"))
    kinds = {kind: len(nodes) for kind, nodes in graph.by_kind().items()}
    assert kinds == {"train": 0, "fit": 108, "measure": 108}
    records = [StudyRecord(cell, Path(), {}) for cell in graph.cells]
    pairs = Counter(kind for kind, _, _ in nested_pairs(records))
    assert pairs == {"dependency": 135, "components": 72}
