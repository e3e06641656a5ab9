"""The page that `make reproduce` writes."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from study.toys import run_toy, toy

RESULTS = Path(__file__).parents[2] / "studies" / "results.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("results")
    run_toy(toy(title="A toy."), made, out=made / "toy")
    return made / "toy"


def page(folder: Path) -> str:
    out = folder.parent / "results.md"
    runpy.run_path(str(RESULTS))["main"](out, [folder])
    return out.read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_holds_tables_seeds_machine_and_orders(folder: Path) -> None:
    text = page(folder)
    assert "## A toy\n\n`studies/small/toy.toml`\n" in text
    assert "Seeds: of measurements 0, 1, of fits 0." in text
    assert (folder / "main.md").read_text(encoding="utf-8") in text
    assert "Made by nppr " in text
    orders = json.loads((folder / "study.json").read_text(encoding="utf-8"))["orders"]
    counted = f"{orders['in_order']} in order, {orders['tied']} tied (the same on every input)"
    assert f"**Nested pairs:** 1, of which {counted}, " in text
    assert "one by one" not in text


def test_it_says_where_families_were_fitted_one_by_one(folder: Path) -> None:
    file = folder / "study.json"
    kept = file.read_text(encoding="utf-8")
    content = json.loads(kept)
    content["orders"]["fitted_apart"] = True
    file.write_text(json.dumps(content))
    try:
        assert "fitted one by one, as in the paper" in page(folder)
    finally:
        file.write_text(kept)


def test_sections_of_other_studies_are_kept(folder: Path) -> None:
    out = folder.parent / "kept.md"
    out.write_text("# Old\n\nHead\n\n## Other\n\n`studies/small/other.toml`\n\nIts table\n")
    write = runpy.run_path(str(RESULTS))["main"]
    write(out, [folder])
    write(out, [folder])
    text = out.read_text(encoding="utf-8")
    assert text.count("## Other\n\n`studies/small/other.toml`\n\nIts table\n") == 1
    assert text.count("## A toy\n") == 1
