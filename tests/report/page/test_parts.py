"""The parts of a page: numbers, the line, classes, pictures, figures, the shell."""

from __future__ import annotations

import base64
import hashlib
import io
import re

import numpy as np
import pytest
import torch
from markupsafe import Markup
from PIL import Image

from nppr.flags import FLAGS
from nppr.report.figures import figures_of
from nppr.report.page import page_shell
from nppr.report.page.cite import BIBTEX, run_text
from nppr.report.page.classes import classes_of
from nppr.report.page.figures import inlined, page_figures
from nppr.report.page.flags import raised_of
from nppr.report.page.headline import headline_of
from nppr.report.page.line import lanes_of
from nppr.report.page.numbers import Numbers
from nppr.report.page.pictures import LARGEST, amplified, png
from nppr.report.page.worst import cases_of
from nppr.report.quoting import guaranteed
from nppr.report.schema import Flag
from nppr.types import Metric
from report.page.made_runs import made_evidence, made_report


def test_a_number_says_where_it_stands() -> None:
    report, _ = made_report()
    text = Numbers(report).at("seconds", "timing", "seconds", "a/b~c")
    assert 'data-pointer="/timing/seconds/a~1b~0c"' in text
    assert ">1.2</data>" in text


def test_the_headline_is_the_widest_set_not_the_lowest_number() -> None:
    report, _ = made_report()
    lowered = [
        row.model_copy(update={"value": 0.001})
        if row.source == "nppr:floor=0.5" and row.metric is Metric.NPPR
        else row
        for row in report.results
    ]
    changed = report.model_copy(update={"results": tuple(lowered)})
    row = headline_of(changed).row
    assert row is not None
    assert row.source == "nppr"


def test_a_reference_noise_that_won_is_the_headline() -> None:
    report, _ = made_report()
    made = [{**each, "fit": {**each["fit"]}} for each in report.distributions]
    made[0]["fit"]["with_references"] = {"winner": "gaussian"}
    row = headline_of(report.model_copy(update={"distributions": tuple(made)})).row
    assert row is not None
    assert row.source == "nppr or noise"


def test_guaranteed_intervals_speak_about_the_same_number() -> None:
    report, _ = made_report()
    row = headline_of(report).row
    assert row is not None
    sure = guaranteed(report, row)
    assert sure is not None
    assert (sure.source, sure.metric, sure.value) == (row.source, row.metric, row.value)
    assert sure.method in ("betting", "clopper-pearson")


def test_lanes_go_from_attacks_to_bounds() -> None:
    report, _ = made_report()
    lanes = lanes_of(report)
    assert [lane.name for lane in lanes] == ["AR", "NPPR", "NPPR", "PR", "PR", *["at least"] * 2]
    assert [lane.at_most for lane in lanes] == [True] * 3 + [False] * 4
    assert [lane.at_least for lane in lanes] == [False] * 5 + [True] * 2
    assert lanes[0].row.source == "merged"


def test_classes_are_means_of_their_inputs() -> None:
    report, per_input = made_report()
    bars = classes_of(report, per_input, "nppr")
    lines = per_input.of("nppr")
    assert [bar.rate for bar in bars] == sorted(bar.rate for bar in bars)
    for bar in bars:
        own = (lines["label"] == bar.label) & (lines["clean_correct"] == 1)
        assert bar.inputs == own.sum()
        assert bar.rate == pytest.approx(lines["rate"][own].astype(float).mean())
        assert bar.low <= bar.rate <= bar.high
    assert sum(bar.inputs for bar in bars) == (lines["clean_correct"] == 1).sum()


def pixels(uri: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(body))))


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_keep_their_pixels(channels: int) -> None:
    image = torch.arange(channels * 12, dtype=torch.uint8).reshape(channels, 3, 4) * 5
    shown = pixels(png(image))
    expected = image[0] if channels == 1 else image.permute(1, 2, 0)
    assert np.array_equal(shown, expected.numpy())


def test_large_and_odd_pictures_are_reduced() -> None:
    assert pixels(png(torch.zeros(3, 300, 150, dtype=torch.uint8))).shape == (LARGEST, 64, 3)
    assert pixels(png(torch.full((5, 2, 2), 7, dtype=torch.uint8))).tolist() == [[7, 7], [7, 7]]


def test_perturbations_are_amplified_around_gray() -> None:
    image, factor = amplified(torch.tensor([[[-1.0, 0.0, 1.0]]]).half(), "linf")
    assert image.tolist() == [[[0, 128, 255]]]
    assert factor == 0.5
    image, factor = amplified(torch.tensor([[[-0.1, 0.0, 0.1]]]), "l2")
    assert image.tolist() == [[[0, 128, 255]]]
    assert factor == pytest.approx(5)
    assert amplified(torch.zeros(1, 1, 1), "l2")[0].tolist() == [[[128]]]


def test_cases_name_what_an_input_was_taken_for() -> None:
    report, _ = made_report(names=[f"<{i}>" for i in range(10)])
    case = cases_of(report, made_evidence().worst[0])[1]
    assert (case.index, case.label, case.taken_for) == (3, "<1>", "<2>")
    assert case.factor == f"{0.5 * 255 / 8:.3g}"


def test_svg_is_cleaned_for_the_page() -> None:
    file = """<?xml version="1.0"?><!DOCTYPE svg><svg width="5pt" height="4pt" viewBox="0 0 5 4">
    <metadata>x</metadata><defs><style type="text/css">*{stroke: red}</style></defs>
    <g id="a"><path style="fill: none; stroke: #000000" clip-path="url(#p)"/><use href="#a"/>
    <text style="font: bold 9px 'DejaVu Sans', sans-serif; text-anchor: middle">t</text></g></svg>"""
    text = inlined(file, "name", 'say "<it>"')
    assert text.startswith(
        '<svg role="img" aria-label="say &#34;&lt;it&gt;&#34;" viewBox="0 0 5 4">'
    )
    assert 'fill="none" stroke="#000000"' in text
    assert 'id="name-a"' in text
    assert 'url(#name-p)"' in text
    assert 'href="#name-a"' in text
    assert 'font-size="9px" font-family="\'DejaVu Sans\', sans-serif" font-weight="bold"' in text
    for gone in ("style", "metadata", "DOCTYPE", "xml"):
        assert gone not in text


def test_real_figures_fit_the_policy() -> None:
    report, per_input = made_report()
    figures = page_figures(figures_of(report, per_input, None))
    assert figures
    names: list[str] = []
    for figure in figures:
        assert figure.alt
        assert " style=" not in figure.markup
        assert "<style" not in figure.markup
        names += re.findall(r' id="([^"]*)"', figure.markup)
    assert len(names) == len(set(names))


def test_flags_are_told_once_with_their_meaning() -> None:
    report, _ = made_report()
    meaning = FLAGS["few-draws"]
    flags = tuple(Flag(id="few-draws", source=name, message=meaning) for name in ("nppr", "pgd"))
    found = raised_of(report.model_copy(update={"flags": flags}))
    assert [(each.id, each.messages, each.sources) for each in found] == [
        ("few-draws", (meaning,), ("nppr", "pgd"))
    ]


def test_the_citation_holds_the_run() -> None:
    report, _ = made_report()
    text = run_text(report)
    assert "resnet20 on pictures (120 inputs), budget linf 8/255, seed 0, nppr 0.1.0" in text
    assert "NPPR nppr: <= " in text
    assert "the population" in text
    assert BIBTEX.count("{") == BIBTEX.count("}")


def test_the_shell_admits_its_own_style_and_script_alone() -> None:
    text = page_shell("a <b>", Markup("<main id='main'></main>"))
    assert "<title>a &lt;b&gt;</title>" in text
    policy = text.split('Security-Policy" content="')[1].split('"')[0]
    for tag in ("style", "script"):
        inner = text.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{tag}-src &#39;sha256-{digest.replace('+', '&#43;')}&#39;" in policy.replace(
            "+", "&#43;"
        )
