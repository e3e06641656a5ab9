"""The sentences on measured noise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nppr import assess
from nppr.report import Report
from nppr.report.measured_noise import describe_samples, name_structure
from nppr.settings import Measure
from nppr.statistics.frame_statistics import Correlation, FrameStatistics

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def report() -> Report:
    frames = 0.5 + 0.02 * RNG.normal(size=(20, 11, 8))
    return assess(sources="uniform", measure=Measure(inputs=20, draws=16, noise_samples=frames))


def with_samples(report: Report, **changes: Any) -> tuple[Report, FrameStatistics]:
    assert report.noise_samples is not None
    found = replace(report.noise_samples, **changes)
    return report.model_copy(update={"noise_samples": found}), found


def correlated(lag: int, most: int = 8) -> tuple[Correlation, ...]:
    """Correlations of 0.5 up to a lag, and then 0."""
    values = [0.5 * (each <= lag) for each in range(1, most + 1)]
    return tuple(
        Correlation("along rows", at, value, value - 0.01, value + 0.01)
        for at, value in enumerate(values, 1)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "look white: read the column white. Correlations up to "),
        ({"autocorrelation": correlated(3)}, "stationary with --correlation-length 4."),
        ({"autocorrelation": correlated(0)}, "Correlations up to 0.01 may remain"),
        ({"autocorrelation": correlated(8)}, "correlated 8 pixels apart: read the column any."),
        ({"autocorrelation": correlated(9, 12)}, "correlated 9 pixels apart: read the column any."),
        ({"position_p": 0.001}, "noisier at some positions than at others: read the column any."),
    ],
)
def test_the_structure_that_fits_is_named(
    report: Report, changes: dict[str, Any], words: str
) -> None:
    changed, found = with_samples(report, **changes)
    sentence = name_structure(changed, found)
    assert words in sentence
    assert describe_samples(changed)[0] == sentence


def test_the_numbers_are_stated(report: Report) -> None:
    changed, _ = with_samples(
        report, std=(4 / 255,), inside=12.3 / 255, largest=20 / 255, beyond=7, pattern_std=2 / 255,
        at_ends=0.03, consecutive=0.3, block_ratio=1.5,
    )  # fmt: skip
    text = "\n".join(describe_samples(changed))
    assert "20 frames of 1 x 11 x 8, standard deviation 4/255." in text
    assert "--eps 0.049. 99.9 % of the absolute values are at most 12.3/255; 7 of 1,760" in text
    assert "up to 20/255" in text
    assert "standard deviation 2/255 over the positions. It is removed" in text
    assert "3 % of the values are at an end of the range: the noise is cut off there." in text
    assert "Consecutive frames are correlated (0.30)" in text
    assert "factor of up to 1.50" in text
    assert "cropped at random places. It stays in the budget." in text


def test_few_frames_are_not_tested(report: Report) -> None:
    changed, _ = with_samples(report, frames=11)
    assert "Fewer than 12 frames cannot show" in "\n".join(describe_samples(changed))


def test_the_page_and_the_table_show_the_sentences(report: Report) -> None:
    page, table = report.to_html(), " ".join(report.table().split())
    for line in describe_samples(report):
        assert line in page
        assert " ".join(line.split()) in table
    assert 'id="samples' in page
    plain = report.model_copy(update={"noise_samples": None})
    assert describe_samples(plain) == []
    assert "your frames" not in plain.table()
