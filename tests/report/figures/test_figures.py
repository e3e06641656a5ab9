from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from helpers import stated
from nppr.core.tally import Metric
from nppr.noise import Dependency
from nppr.report import printed_numbers
from nppr.report.figures import Subject, draw, figures_of
from nppr.report.figures.figure_style import INK, looks_of, name_headlines, print_percent
from nppr.report.figures.noise_figures import NOISE_FIGURES
from nppr.report.ladder_tables import name_place

pytestmark = pytest.mark.slow

PAGE = ["searches", "ladder", "radii", "floors", "rates"]
ORDER = ["contours", "tsne", "inputs", "bands", "means", "covariances", "weights", *PAGE]


@pytest.fixture(scope="module")
def pages(run: Any) -> dict[str, str]:
    return {name: each.svg for name, each in run.drawn.items()}


def test_a_run_with_everything_has_every_figure_in_order(run: Any) -> None:
    assert list(run.drawn) == ORDER
    assert [each.id for each in figures_of(run.report, run.per_input, run.evidence)] == PAGE


@pytest.mark.parametrize("name", ORDER)
def test_a_figure_stands_by_itself(pages: dict[str, str], run: Any, name: str) -> None:
    page = pages[name]
    root = ElementTree.fromstring(page)
    drawn = run.drawn[name]
    assert page.startswith("<svg")
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == drawn.alt
    assert root.attrib["width"] == "100%"
    assert root[0].tag.endswith("title")
    assert root[0].text == drawn.title
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    references = re.findall(r'href="([^"]{0,20})|url\(([^)]*)\)', page)
    assert all(
        found.startswith(("#", "data:image/png")) for pair in references for found in pair if found
    )
    assert len(page) <= 150_000
    assert INK not in page
    assert " style=" not in page
    assert "currentColor" in page
    assert "<text" in page


def test_ids_are_unique_in_a_page_and_references_find_them(pages: dict[str, str]) -> None:
    page = "".join(pages.values())
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    wanted = re.findall(r'url\(#([^)]*)\)|href="#([^"]*)"', page)
    assert {found for pair in wanted for found in pair if found} <= set(ids)


def test_the_same_run_gives_the_same_bytes(run: Any) -> None:
    names = ("contours", "tsne", "weights", "radii")
    first, again = run.only(*names), run.only(*names)
    assert list(first) == list(names)
    for name in names:
        assert first[name].svg == again[name].svg


def test_text_alternatives_hold_the_numbers(run: Any) -> None:
    drawn = run.drawn
    rows = name_headlines(run.report.numbers)
    assert {row.metric for row in rows.values()} >= {Metric.NPPR, Metric.PR, Metric.AR}
    assert Dependency.JOINT in {row.learned.rung for row in rows.values() if row.learned}
    assert Dependency.JOINT in {entry.dependency for entry in run.report.distributions}
    assert "merged" not in drawn["radii"].alt
    assert "a search at the other radius may find worse" in drawn["radii"].caption
    for source, row in rows.items():
        if source == "merged":
            continue
        assert row.value is not None
        low, high = stated(row).ends
        ends = printed_numbers.percent(low, "at-least"), printed_numbers.percent(high, "at-most")
        shown = f"{print_percent(row.value)} ({ends[0]}-{ends[1]} %)"
        assert f"{source}: {shown} at 2/255, {shown} at 8/255" in drawn["radii"].alt
        if row.learned and row.learned.rung is Dependency.JOINT:
            assert f"NPPR {shown}" in drawn["floors"].alt
        if row.learned:
            assert row.learned.rung is not None
            place = name_place((row.learned.floor, row.learned.structure))
            rung = f"{row.learned.rung.knowledge}, {place}: {print_percent(row.value)} ("
            assert rung in drawn["ladder"].alt
    for entry in run.report.distributions:
        spread = entry.diagnostics.realised_std
        if entry.dependency is Dependency.JOINT:
            assert f"realised standard deviation {spread:.2f}" in drawn["floors"].alt
    curves = {rung.name: rung.curve for rung in run.report.ladder if rung.dependency.is_fitted}
    assert curves
    for name, curve in curves.items():
        values = ", ".join(map(print_percent, curve.rounds))
        assert f"{name}, {curve.calls:,} calls" in drawn["searches"].alt
        assert f": {values}; restarts" in drawn["searches"].alt
    assert print_percent(float(run.draws.weights.mean(0).max())) in drawn["weights"].alt
    rates = run.per_input.of("uniform")
    whole = (rates["rate"][rates["clean_correct"] == 1] == 1).mean()
    assert f"{print_percent(whole)} in all" in drawn["rates"].alt
    for each in drawn.values():
        assert re.search(r"\d", each.alt)
        assert each.caption.endswith(".")


def test_a_source_has_one_colour_everywhere(pages: dict[str, str], run: Any) -> None:
    looks = looks_of(run.report)
    for name in ("contours", "weights", "radii", "floors", "rates"):
        few = name in ("contours", "weights")  # which leave some of many out
        for source in ("nppr:joint",) if few else ("nppr:joint", "nppr:joint:floor=0.5"):
            assert looks[source].colour.lower() in pages[name].lower(), (name, source)
    for name in ("radii", "floors", "rates"):
        assert looks["uniform"].colour.lower() in pages[name].lower()


def test_what_is_missing_is_left_out(run: Any) -> None:
    bare = run.report.model_copy(update={"distributions": (), "other_radii": ()})
    assert [each.id for each in figures_of(bare)] == ["searches", "ladder"]
    only = figures_of(run.report, None, None)
    assert [each.id for each in only] == ["searches", "ladder", "radii", "floors"]
    assert draw(NOISE_FIGURES, Subject(run.report, None, None)) == []
    assert not run.depending_on(Dependency.INPUT).only("bands")


@pytest.mark.parametrize(
    ("inputs", "draws", "components"), [(1, 1, 1), (1, 2, 3), (3, 1, 3), (3, 2, 1)]
)
def test_little_is_enough(run: Any, inputs: int, draws: int, components: int) -> None:
    held = run.draws
    small = run.with_draws(
        indices=held.indices[:inputs],
        labels=held.labels[:inputs],
        many=held.many[:inputs, :draws],
        few=held.few[:1, :draws],
        weights=torch.full((inputs, components), 1 / components),
        means=held.means[:components],
        stds=held.stds[:components],
        covariances=held.covariances[:components],
        projected=held.projected[:components],
    )
    small = small.only(*ORDER[:7])
    for each in small.values():
        ElementTree.fromstring(each.svg)
    assert ("means" in small) == (components > 1)
    assert {"covariances", "weights"} <= small.keys()


def test_noise_that_never_varies_does_not_fail(run: Any) -> None:
    still = run.with_draws(
        many=torch.ones_like(run.draws.many), few=torch.ones_like(run.draws.few)
    ).only("contours", "tsne", "inputs", "bands")
    assert not still
    almost = torch.ones_like(run.draws.many)
    almost[0, 0] = 0.5
    found = run.with_draws(many=almost).only("contours", "tsne", "bands")
    for name in ("contours", "tsne", "bands"):
        ElementTree.fromstring(found[name].svg)


def test_names_with_markup_are_text(run: Any) -> None:
    names = ["<script>x</script>", "$x_{", 'id="a" & b', "tab\there\x00", "🐱 猫", "", *"abcd"]
    found = run.with_class_names(names).only("inputs", "bands", "weights")
    for each in found.values():
        page = each.svg
        ElementTree.fromstring(page)
        assert "<script" not in page
    assert "&lt;script" in found["bands"].svg
    assert 'id="a" &amp; b' in found["bands"].svg


def test_two_hundred_classes_stay_readable(run: Any) -> None:
    names = [f"class {number}" for number in range(200)]
    labels = torch.arange(len(run.draws.labels)) * 4 % 200
    many = run.with_class_names(names).with_draws(labels=labels)
    many = many.only("tsne", "bands", "weights")
    for name in ("tsne", "bands", "weights"):
        page = many[name].svg
        assert len(re.findall(r">class \d+<", page)) <= 30, name
        assert len(page) <= 150_000
