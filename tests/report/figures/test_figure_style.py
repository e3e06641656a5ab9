from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from nppr.core.tally import Metric
from nppr.report.figures import Drawn, save
from nppr.report.figures.figure_style import (
    HUES,
    INK,
    PALETTE,
    looks_of,
    named,
    styled,
    thinned,
)
from report.page.made_runs import made_report

pytestmark = pytest.mark.slow


@pytest.fixture
def drawn(run: Any) -> list[Drawn]:
    return [run.drawn["floors"], run.drawn["bands"]]


def test_files_stand_alone(drawn: list[Drawn], tmp_path: Path) -> None:
    paths = save(drawn, tmp_path / "new", ("svg", "png", "pdf"))
    assert [path.name for path in paths] == [
        f"{name}.{form}" for name in ("floors", "bands") for form in ("svg", "png", "pdf")
    ]
    svg, png, pdf = (path.read_bytes() for path in paths[:3])
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert svg.startswith(b"<?xml")
    root = ElementTree.fromstring(svg)
    assert root.attrib["width"].endswith("pt")
    assert root[1].attrib["fill"] == "#ffffff"
    assert b"currentColor" not in svg
    again = save(drawn[:1], tmp_path / "again", ("svg", "png", "pdf"))
    assert [path.read_bytes() for path in again] == [svg, png, pdf]


def test_rows_look_different_and_have_a_hue_of_their_metric() -> None:
    report, _ = made_report()
    looks = looks_of(report)
    assert set(looks) == {
        "gaussian", "uniform", "pgd", "merged", "nppr:joint", "nppr:joint (lowest of the set)",
        "nppr:joint:floor=0.5",
        "nppr:joint:floor=0.5 (lowest of the set)",
    }  # fmt: skip
    assert len(set(looks.values())) == len(looks)
    known = [row for row in report.numbers if row.name in looks and row.metric in HUES]
    assert {row.metric for row in known} >= {Metric.PR, Metric.AR, Metric.NPPR}
    assert [row.name for row in known if looks[row.name].colour not in HUES[row.metric]] == []
    rows = [
        row.with_subject(source=f"mine:{number}")
        for number in range(20)
        for row in report.numbers
        if row.source == "gaussian"
    ]
    many = looks_of(report.model_copy(update={"numbers": tuple(rows)}))
    assert len(set(many.values())) == 20
    assert {look.colour for look in many.values()} == set(HUES[Metric.PR])


@pytest.mark.parametrize("colour", sorted({*PALETTE, *(c for hues in HUES.values() for c in hues)}))
def test_colours_are_seen_on_white_and_on_black(colour: str) -> None:
    def light(text: str) -> float:
        parts = [int(text[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert 1.05 / (light(colour) + 0.05) > 2
    assert (light(colour) + 0.05) / (light(INK) + 0.05) > 3


def test_settings_of_others_are_untouched() -> None:
    before = mpl.rcParams["text.color"]
    with styled():
        assert mpl.rcParams["text.color"] == INK
    assert mpl.rcParams["text.color"] == before


def test_names_are_short_and_printable() -> None:
    assert named("a\nb\x00") == "a b"
    assert len(named("x" * 100)) <= 20


@pytest.mark.parametrize(("count", "most"), [(0, 5), (1, 5), (5, 5), (200, 30), (31, 30)])
def test_thinned(count: int, most: int) -> None:
    kept = thinned(count, most)
    assert len(kept) <= most
    assert kept[:1] == ([0] if count else [])
    assert len({second - first for first, second in pairwise(kept)}) <= 1
