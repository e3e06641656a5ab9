"""The source that draws measured noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nppr import assess
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Metric
from nppr.data import Data, from_arrays
from nppr.errors import BudgetError
from nppr.models import frozen, load_classifier
from nppr.settings import Measure
from nppr.sources.noise_samples import NoiseSamples

RNG = np.random.default_rng(0)
BUDGET = Budget.linf(0.1)


def data_of(side: int) -> Data:
    return from_arrays(torch.rand(20, 1, side, side), np.arange(20) % 2)


def frames_of(side: int, scale: float = 0.05) -> NDArray[np.float64]:
    return 0.5 + scale * np.random.default_rng(side).uniform(-1, 1, size=(12, side, side))


def drawn(source: NoiseSamples, side: int, inputs: int = 40) -> torch.Tensor:
    x = torch.zeros(inputs, 1, side, side)
    block = DrawBlock(0, "evaluate", tuple(range(inputs)), 0, 16, torch.device("cpu"))
    with frozen(load_classifier("digits-cnn")) as model:
        return source.perturb(model, x, torch.zeros(inputs), block).flatten(0, 1)


def nearest(found: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Return which known pattern each draw is; it must be one of them."""
    distances = torch.cdist(
        found.flatten(1), known, compute_mode="donot_use_mm_for_euclid_dist"
    ).min(1)
    assert float(distances.values.max()) == 0
    return distances.indices


def test_whole_frames_are_drawn_with_replacement() -> None:
    source = NoiseSamples.from_frames(frames_of(6), data_of(6), BUDGET, confidence=0.95)
    found = drawn(source, 6)
    places = nearest(found, source.frames.flatten(1))
    counts = places.bincount(minlength=12)
    assert int(counts.min()) > 0.5 * len(found) / 12
    assert int(counts.max()) < 1.5 * len(found) / 12


@pytest.mark.parametrize(("have", "need"), [(9, 6), (4, 6), (5, 12)])
def test_other_sizes_are_cropped_or_repeated_at_random_places(have: int, need: int) -> None:
    source = NoiseSamples.from_frames(frames_of(have), data_of(need), BUDGET, confidence=0.95)
    starts = range(have - need + 1) if have > need else range(have)
    rows = [(start + np.arange(need)) % have for start in starts]
    known = torch.stack(
        [source.frames[:, :, r][..., c].flatten(1) for r in rows for c in rows]
    ).flatten(0, 1)
    places = nearest(drawn(source, need, inputs=200), known)
    kinds = (places // 12).bincount(minlength=len(rows) ** 2)
    assert int(kinds.min()) > 0


def test_the_budget_is_kept_only_if_all_frames_stay_inside() -> None:
    for scale, inside in ((0.05, True), (0.3, False)):
        source = NoiseSamples.from_frames(frames_of(6, scale), data_of(6), BUDGET, confidence=0.95)
        assert (source.budget == BUDGET) == inside
    l2 = Budget.l2(0.35)
    for scale, inside in ((0.05, True), (0.2, False)):
        frames = frames_of(6, scale)
        assert (
            NoiseSamples.from_frames(frames, data_of(6), l2, confidence=0.95).budget == l2
        ) == inside


def test_tables_and_transformations_are_refused() -> None:
    with pytest.raises(BudgetError, match="left out with a transformation"):
        NoiseSamples.from_frames(frames_of(6), data_of(6), Budget.box("rotate=10"), confidence=0.95)
    table = from_arrays(RNG.random((20, 5)), np.arange(20) % 2, input_range=(0, 1))
    with pytest.raises(BudgetError, match="left out with a table"):
        NoiseSamples.from_frames(RNG.random((12, 5)), table, BUDGET, confidence=0.95)


def test_an_array_is_measured_and_described() -> None:
    frames = frames_of(8)
    measure = Measure(inputs=40, draws=16, noise_samples=frames)
    report = assess(sources="uniform", measure=measure)
    assert report.noise_samples is not None
    assert report.noise_samples.length == 1
    row = report.headline("noise-samples", Metric.PR)
    assert row is not None
    assert row.radius == 0.1
    assert row.draws == 16
    assert "read the column white" in " ".join(report.table().split())
    assert report.settings.measure.noise_samples is not None
    assert '"noise_samples": "an array"' in report.to_json()
    assert measure.with_(draws=20).noise_samples is frames


def test_with_other_radii_it_has_no_budget() -> None:
    measure = Measure(inputs=20, draws=16, noise_samples=frames_of(8), radii=("0.05",))
    report = assess(sources="uniform", measure=measure)
    row = report.headline("noise-samples", Metric.PR)
    assert row is not None
    assert row.radius is None
    assert {each.name for each in report.other_radii} == {"uniform"}
    assert "has no budget, because it is the same at all radii" in " ".join(report.table().split())


def test_noise_outside_the_budget_takes_no_part_in_the_merged_attack() -> None:
    frames = frames_of(8, 0.45).round()  # black or white pixels
    measure = Measure(inputs=40, draws=16, noise_samples=frames)
    report = assess(sources="pgd:steps=2,uniform", measure=measure)
    text = " ".join(report.table().split())
    assert "It leaves the budget, is not clipped to it" in text
    noise, merged = (
        report.headline(name, metric)
        for name, metric in (("noise-samples", Metric.PR), ("merged", Metric.AR))
    )
    assert noise is not None
    assert merged is not None
    assert noise.value is not None
    assert merged.value is not None
    assert noise.value < merged.value
    assert noise.radius is None
    assert not [
        each for each in report.flags if each.source == "noise-samples" and each.id == "masking"
    ]
