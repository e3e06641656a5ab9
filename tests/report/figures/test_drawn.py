from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nppr.errors import SpecError
from nppr.report.figures import Drawn, check_formats, save


@pytest.fixture
def drawn(run: Any) -> list[Drawn]:
    found = run.drawn
    return [found["floors"], found["bands"]]


def test_files_stand_alone(drawn: list[Drawn], tmp_path: Path) -> None:
    paths = save(drawn, tmp_path / "new", "svg,png,pdf")
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
    again = save(drawn[:1], tmp_path / "again", ["svg", "png", "pdf"])
    assert [path.read_bytes() for path in again] == [svg, png, pdf]


@pytest.mark.parametrize("formats", ["jpg", "svg,gif", "", [], ["svg", ""]], ids=repr)
def test_other_formats_are_refused_in_one_line(formats: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"`figures` must be svg, png or pdf.*got '.*'") as found:
        save([], tmp_path / "none", formats)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "none").exists()


def test_formats_in_any_case_and_once() -> None:
    assert check_formats(" SVG, png,svg") == ("svg", "png")
