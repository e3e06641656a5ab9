"""The sections below the answer in runs of every kind."""

from __future__ import annotations

import base64
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from nppr.core.tally import Metric
from nppr.noise import Dependency, Family
from nppr.report import PerInput, Report
from nppr.report.evidence import Evidence
from nppr.report.model import Flag, LayoutRecord, PrecisionRecord, Width
from nppr.report.page import render
from nppr.report.page.input_sections import LARGEST_PICTURE, amplified, cases_of, classes_of, png
from nppr.report.printed_numbers import percent
from nppr.search import default_settings
from report.page.made_runs import RARE, made_evidence, made_report, won_by


def section(
    name: str, report: Report, per_input: PerInput | None = None, evidence: Evidence | None = None
) -> str:
    """A section without its tags."""
    text = render(report, per_input, evidence).split(f'<section id="{name}"')[1]
    plain = re.sub("<[^>]*>", "", text.split("</section>")[0].partition(">")[2])
    return re.sub(r"\s+", " ", plain.replace("&nbsp;", " ").replace("&lt;", "<"))


def test_the_admissible_set_is_the_one_that_was_searched() -> None:
    """It can be less than what was asked for, where the model shows no features."""
    report, _ = made_report()
    assert "joint: the noise may depend on the input and its true label" in section(
        "admissible", report
    )
    assert "was asked for" not in section("admissible", report)
    settings = default_settings(Family(dependency=Dependency.LABEL))
    family = Family(dependency=Dependency.LABEL)
    lowered = tuple(
        made.model_copy(
            update={
                "family": replace(family, floor=made.family.floor),
                "search": made.search.model_copy(update={"settings": settings}),
            }
        )
        for made in report.distributions
    )
    text = section("admissible", report.model_copy(update={"distributions": lowered}))
    assert "label: the noise may depend on the true label." in text
    assert "joint was asked for; the smaller set was searched" in text
    assert "the input" not in text


def test_a_wanted_precision_reports_what_was_measured() -> None:
    widths = {
        name: Width(half_width=half, between=0.1, within=0.1)
        for name, half in {"uniform": 0.01, "nppr:joint": 0.031}.items()
    }
    precision = PrecisionRecord(
        asked=0.05, reached=True, rounds=((40, 8), (60, 32)), available_inputs=120,
        needed_inputs=None, widths=widths,
    )  # fmt: skip
    report, _ = made_report()
    assert "20 of noise per input" in section("measured", report)
    text = section("measured", report.model_copy(update={"precision": precision}))
    assert "32 of noise per input" in text
    assert (
        "asked for intervals within ±5.0 percentage points of their value, reached with 60 of 120"
        in text
    )
    assert "every PR and NPPR is within ±3.1 percentage points by the interval shown" in text


def test_the_least_randomness_is_claimed_only_where_it_is_true() -> None:
    """Of latent coordinates, of pixels without an up-sampler, and before images are clipped."""
    report, _ = made_report()
    search = report.settings.search
    assert search is not None
    floor = next(made.family.floor for made in report.distributions if made.family.floor)

    def shown(upsampler: str, norm: str) -> str:
        family = search.family.with_(upsampler=upsampler)
        searched = replace(search, family=family)
        made = tuple(
            each.model_copy(
                update={"search": each.search.model_copy(update={"settings": searched})}
            )
            for each in report.distributions
        )
        changes = {
            "settings": report.settings.model_copy(update={"search": searched}),
            "budget": report.budget.model_copy(update={"norm": norm}),
            "distributions": made,
        }
        return section("admissible", report.model_copy(update=changes))

    pixels = shown("none", "linf")
    assert f"No latent coordinate has a standard deviation below {search.family.min_std}" in pixels
    assert "that of a pixel value before the map into the budget; the map" in pixels
    least = (
        f"no pixel value has a standard deviation below {floor / math.sqrt(3):.3f} of the radius"
    )
    assert f"before the image is clipped to [0, 1], {least}; the clipping may" in pixels
    assert "Uniform noise in the budget has 0.577" in pixels
    smooth = shown("bicubic", "l2")
    assert "that of a pixel value" not in smooth
    size = math.prod(report.data.shape)
    ball = floor * math.sqrt(size / (size + 2))
    assert f"standard deviation below {ball:.3f} of the radius / sqrt({size})" in smooth
    assert "Uniform noise in the budget has 0.577" not in smooth


def test_other_radii_are_upper_bounds_of_scaled_noise() -> None:
    report, _ = made_report(radii=True)
    text = section("comparison", report).partition("At other radii")[2]
    assert "Learned noise is that of radius 8/255, scaled" in text
    assert "merged" not in text.split("Rare")[0].split("Inputs that are")[0]
    assert re.search(r"ARpgd≤ [\d.]+ \(", text)
    assert re.search(
        r"NPPRnppr:joint≤ [\d.]+ \([\d.]+ observed\)≤ [\d.]+ \([\d.]+ observed\)", text
    )
    assert not re.search(r"PRgaussian≤", text)


def test_rare_failures_are_reported_without_contradiction() -> None:
    report, _ = made_report()
    report = report.model_copy(update={"rare": (RARE,)})
    text = section("comparison", report)
    assert "1 of the 9 inputs without a failing draw: failures were found for 0" in text
    assert "none was found by following the margin for 1, 0 ran out of calls" in text
    assert "rarely" not in text
    assert "Estimates by splitting are an indication" in text
    assert "fails with probability at most 7.5e-03, with 95 % confidence for each" in text
    assert "by its 400 or more independent draws" in text
    assert "the other 8 count as never failing" in text
    assert "The largest estimated failure probability of those followed is 4.4e-07" in text
    assert "no calls were left: gaussian, uniform, bound:ratio=1+10, nppr:joint:floor=0.5." in text


@pytest.mark.parametrize("even", [True, False])
def test_classes_that_are_alike_have_no_worst_one(even: bool) -> None:
    report, per_input = made_report()
    if even:
        per_input = PerInput({**per_input.columns, "rate": per_input["rate"] * 0 + 1})
    text = section("classes", report, per_input)
    assert ("all classes are alike: 100.0 % of the draws" in text) == even
    assert ("The worst class under" in text) != even


@pytest.mark.parametrize(
    ("only", "colour"),
    [("all", "nppr"), ("noise", "pr"), ("attack", "ar"), ("bound", "bound")],
)
def test_bars_have_the_colour_of_their_metric(only: str, colour: str) -> None:
    text = render(*made_report(only=only))
    before = text.split('id="class-bars"')[0]
    assert before.rpartition('class="scroll c-')[2].startswith(f'{colour}"')


def test_inputs_that_no_draw_broke_are_not_the_worst() -> None:
    report, per_input = made_report()
    evidence = made_evidence()
    assert "did worst under nppr" in section("worst", report, per_input, evidence)
    whole = tuple(replace(each, rates=torch.ones(8)) for each in evidence.worst)
    text = section("worst", report, per_input, Evidence(whole))
    assert "No draw under nppr:joint failed" in text
    assert "did worst under nppr" not in text


def test_classes_and_pictures_are_of_the_same_source() -> None:
    report, per_input = made_report()
    report = won_by("gaussian", report)
    worst = made_evidence().worst
    evidence = Evidence((*worst, replace(worst[0], source="gaussian")))
    assert "under gaussian" in section("classes", report, per_input)
    assert "did worst under gaussian" in section("worst", report, per_input, evidence)
    assert "For nppr:joint gaussian noise was worse than the family" in section(
        "admissible", report
    )


def test_one_input_is_no_plural() -> None:
    report, _ = made_report(1, 2)
    assert "of 1 input " in section("answer", report)
    assert report.headline("clean", Metric.ACCURACY) is not None


def test_flags_are_listed_once_with_their_sources() -> None:
    report, _ = made_report()
    flags = tuple(
        Flag(id="few-draws", source=name, message="why") for name in ("nppr:joint", "pgd")
    )
    text = section("flags", report.model_copy(update={"flags": flags}))
    assert text.count("few-draws") == text.count("why") == 1
    assert "Raised for nppr:joint, pgd." in text


def test_classes_are_means_of_their_inputs() -> None:
    report, per_input = made_report()
    bars = classes_of(report, per_input, "nppr:joint")
    lines = per_input.of("nppr:joint")
    assert bars
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
    assert pixels(png(torch.zeros(3, 300, 150, dtype=torch.uint8))).shape == (
        LARGEST_PICTURE,
        64,
        3,
    )
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


def test_every_kind_of_noise_is_shown_on_the_same_input() -> None:
    report, per_input = made_report()
    evidence = made_evidence()
    text = section("looks", report, per_input, evidence)
    assert "the same input, 3 (0)" in text
    known, joint = (
        report.headline(*each) for each in (("gaussian", Metric.PR), ("nppr:joint", Metric.NPPR))
    )
    assert known is not None
    assert joint is not None
    assert f"known gaussian leaves {percent(known.value or 0)} %." in text
    assert (
        f"any nppr:joint leaves {percent(joint.value or 0)} %. One fixed pattern is allowed" in text
    )
    assert text.count("on an input: classified as 1") == 2
    page = (
        render(report, per_input, evidence).split('<section id="looks"')[1].split("</section>")[0]
    )
    assert page.count('src="data:image/png') == 2 * 4
    assert page.count("<rect") == 2 * 33
    assert 'id="looks"' not in render(report, per_input, replace(evidence, looks=()))


def test_noise_that_a_search_kept_is_named() -> None:
    report, per_input = made_report()
    first, *others = report.distributions
    family = first.family.with_(dependency=Dependency.LABEL)
    kept = report.model_copy(
        update={"distributions": (first.model_copy(update={"family": family}), *others)}
    )
    words = "Nothing worse was found than nppr:label, so this is the same noise."
    assert words in section("looks", kept, per_input, made_evidence())


def test_the_look_of_a_signal_is_drawn_as_lines() -> None:
    report, per_input = made_report()
    signals = report.model_copy(
        update={
            "data": report.data.model_copy(
                update={
                    "layout": LayoutRecord(shape=(1, 32), low=(-1.0,), high=(1.0,)),
                    "shape": (1, 1, 32),
                }
            )
        }
    )
    image = made_evidence().looks[1]
    look = replace(
        image,
        clean=torch.full((1, 1, 32), 300, dtype=torch.int32),
        perturbed=torch.full((1, 1, 32), 400, dtype=torch.int32),
        sample=torch.ones(1, 1, 32).half(),
        spectrum=torch.zeros(1, 32),
    )
    page = render(signals, per_input, Evidence(looks=(look,))).split('<section id="looks"')[1]
    page = page.split("</section>")[0]
    assert page.count("<polyline") == 4
    assert "<img" not in page
    assert "mid-range at true scale" in page
