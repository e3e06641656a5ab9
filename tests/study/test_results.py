"""The page that `make reproduce` writes."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from nppr.study.plan import plan
from nppr.study.study_file import study_from
from nppr.study.study_output import write_study
from nppr.study.study_records import Orders, Pair, StudyRecord, StudyValue
from nppr.study.table_layout import make_table
from study.toys import toy

RESULTS = Path(__file__).parents[2] / "studies" / "results.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study as it is written, with numbers that were not measured."""
    study = study_from(toy(title="A toy."))
    cells = plan(study).cells
    values = {"normalised": StudyValue(0.5), "entropy_ratio": StudyValue(0.25)}
    records = [StudyRecord(cell, Path(), values) for cell in cells]
    tables = [make_table(entry, [cell.place for cell in cells], records) for entry in study.tables]
    place: dict[str, str | int | float | None] = {
        "classifier": "cnn", "norm": "linf", "fit_radius": "0.2", "upsampler": "none",
        "epochs": "", "fit_seed": 0,
    }  # fmt: skip
    pair = Pair(
        "dependency",
        place,
        "independent, K = 2",
        "joint, K = 2",
        -1.5,
        0.9,
        tied=False,
        wrong=False,
    )
    write_study(study, tables, Orders((pair,)), (), tmp_path / "toy")
    return tmp_path / "toy"


def page(folder: Path) -> str:
    out = folder.parent / "results.md"
    runpy.run_path(str(RESULTS))["main"](out, [folder])
    return out.read_text(encoding="utf-8")


def test_it_holds_tables_seeds_machine_and_orders(folder: Path) -> None:
    text = page(folder)
    assert "## A toy\n\n`studies/small/toy.toml`\n" in text
    assert "Seeds: of measurements 0, 1, of fits 0." in text
    assert (folder / "main.md").read_text(encoding="utf-8") in text
    assert "Made by nppr " in text
    assert "**Nested pairs:** 1, of which 1 in order, 0 tied (the same on every input), " in text
    assert "one by one" not in text


def test_it_says_where_families_were_fitted_one_by_one(folder: Path) -> None:
    file = folder / "study.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["orders"]["fitted_apart"] = True
    file.write_text(json.dumps(content))
    assert "fitted one by one, as in the paper" in page(folder)


def test_sections_of_other_studies_are_kept(folder: Path) -> None:
    out = folder.parent / "kept.md"
    out.write_text("# Old\n\nHead\n\n## Other\n\n`studies/small/other.toml`\n\nIts table\n")
    write = runpy.run_path(str(RESULTS))["main"]
    write(out, [folder])
    write(out, [folder])
    text = out.read_text(encoding="utf-8")
    assert text.count("## Other\n\n`studies/small/other.toml`\n\nIts table\n") == 1
    assert text.count("## A toy\n") == 1
