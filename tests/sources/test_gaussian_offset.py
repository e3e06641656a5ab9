"""Both ends of a bracket: closed forms on a linear classifier, and that they can be reproduced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from helpers import GradientCounter, Linear, evaluate_part
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Claim, Direction, Evaluate, FloatArray, IntArray, Metric, Progress
from nppr.data import Split
from nppr.errors import BudgetError, SpecError
from nppr.measuring.blocks import FileStore
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, PreparedClassifier, frozen, prepare
from nppr.source_names import FEWEST_OFFSET_CALLS
from nppr.sources.gaussian_offset import (
    GRADIENT_DRAWS,
    OffsetNoise,
    OffsetSearch,
    make_offset_sources,
)

SIGMA, INPUTS = 0.02, 40
W = torch.tensor([[[1.0, -2.0], [0.5, 3.0]]])
DISTANCES = np.tile([0.5, 1.0, 1.5, 2.0, 3.0], INPUTS // 5)
"""From the boundary, in standard deviations; pixels stay far from 0 and 1."""


def linear() -> tuple[Classifier, Split[Evaluate]]:
    """Grey images at these distances, on both sides of the boundary in turn."""
    signs = torch.where(torch.arange(INPUTS) % 2 == 0, 1.0, -1.0)
    away = torch.from_numpy(DISTANCES).float() * SIGMA * signs / W.norm()
    images = 0.5 + away.view(-1, 1, 1, 1) * W
    return Classifier(Linear(W, -0.5 * float(W.sum()))), evaluate_part(images, (signs < 0).long())


def truth(steps: float) -> FloatArray:
    """Correct with probability `Phi(distance - R / sigma)` under the worst offset of length R."""
    found: FloatArray = norm.cdf(DISTANCES - steps)
    return found


@pytest.mark.parametrize("steps", [0.5, 1.0, 2.0])
def test_both_ends_reach_the_truth_of_a_linear_classifier(steps: float) -> None:
    known, split = linear()
    noise, search = make_offset_sources(SIGMA, [steps * SIGMA])
    below, above = (measure(each, known, split, draws=2000) for each in (noise, search))
    exact = float(truth(steps).mean())
    at_least = noise.read(below, below, 0.95, 0)
    at_most = search.read(above, above, 0.95, 0)
    assert above.rates.mean() == pytest.approx(exact, abs=0.005), "the search finds the worst"
    for claim in Claim:
        low = next(row for row in at_least if (row.metric, row.claim) == (Metric.BOUND, claim))
        high = next(row for row in at_most if row.claim is claim)
        assert low.value < exact < high.high
        assert low.direction is Direction.LOWER_BOUND
        assert high.direction is Direction.UPPER_BOUND
        if claim is Claim.TEST_SET:
            assert high.high - low.value < 0.06


def test_the_offset_found_is_the_one_of_the_closed_form() -> None:
    known, split = linear()
    x, y = split.batch(np.arange(INPUTS))
    search = OffsetSearch(SIGMA, 0.03)
    with frozen(known) as model:
        found = search.offsets(model, x, y, block(INPUTS))
    sides = torch.where(y == 0, -1.0, 1.0).view(-1, 1, 1, 1)
    assert torch.allclose(found, 0.03 * sides * W / W.norm(), atol=1e-6)


def block(inputs: int, seed: int = 0, number: int = 0, size: int = 16) -> DrawBlock:
    indices = tuple(range(inputs))
    return DrawBlock(seed, "evaluate", indices, number, size, torch.device("cpu"))


def test_the_noise_has_its_deviation_and_the_offset_as_its_mean() -> None:
    known, split = linear()
    x, y = split.batch(np.arange(INPUTS))
    noise, search = make_offset_sources(SIGMA, [0.05])
    with frozen(known) as model:
        plain, moved = (
            torch.cat([each.perturb(model, x, y, block(INPUTS, 0, k)) for k in range(60)], 1)
            for each in (noise, search)
        )
        offsets = OffsetSearch(SIGMA, 0.05).offsets(model, x, y, block(INPUTS))
    assert float(plain.std()) == pytest.approx(SIGMA, rel=0.01)
    assert float(plain.mean(1).abs().max()) < 5 * SIGMA / np.sqrt(960)
    assert torch.allclose(moved - plain, offsets[:, None].expand_as(plain), atol=1e-6)
    assert bool((offsets.flatten(1).norm(dim=1) <= 0.05 * (1 + 1e-5)).all())


class Saturated(nn.Module):
    """Sees whether the mean exceeds 0.5, by steps that have no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        margin = (x.flatten(1).mean(1) > 0.5).float() + 0 * x.flatten(1).sum(1)
        return torch.stack([margin, 1 - margin], dim=1)


def test_where_nothing_worse_is_found_the_offset_is_0() -> None:
    x = torch.full((3, 1, 2, 2), 0.9)
    with frozen(Classifier(Saturated())) as model:
        found = OffsetSearch(SIGMA, 0.1).offsets(model, x, torch.zeros(3).long(), block(3))
    assert not found.any()


def bent() -> tuple[Classifier, Split[Evaluate]]:
    """A small network whose worst offset is not known, with the labels it gives."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 2)).eval()
    images = torch.rand(INPUTS, 1, 4, 4)
    with torch.no_grad():
        last = network[3]
        assert isinstance(last, nn.Linear)
        last.bias.sub_(network(images).mean(0))
        labels = network(images).argmax(1)
    return Classifier(network), evaluate_part(images, labels)


def ready(micro_batch: int) -> tuple[PreparedClassifier, Split[Evaluate]]:
    known, split = bent()
    return prepare(known, probe(split), classes=2, micro_batch=micro_batch), split


@pytest.mark.parametrize("seed", range(3))
def test_on_the_draws_it_chooses_with_it_is_never_above_no_offset(seed: int) -> None:
    known, split = bent()
    x, y = split.batch(np.arange(INPUTS))
    search, draws = OffsetSearch(0.2, 0.2), block(INPUTS, seed)
    fresh = replace(
        draws, split="evaluate/offset-search", block=search.steps, size=GRADIENT_DRAWS,
        capacity=GRADIENT_DRAWS,
    )  # fmt: skip
    with frozen(known) as model:
        found = search.offsets(model, x, y, draws)

        def correct(offset: Tensor) -> Tensor:
            logits = model.logits(search._images(x, offset, fresh))
            answers = logits.argmax(1).view(INPUTS, GRADIENT_DRAWS)
            return (answers == y[:, None]).sum(1)

        assert bool((correct(found) <= correct(torch.zeros_like(x))).all())
    assert bool(found.flatten(1).any(1).any())


def counts(micro_batch: int = 32, seed: int = 0, **more: Any) -> IntArray:
    model, split = ready(micro_batch)
    return measure(OffsetSearch(0.2, 0.2, 20), model, split, draws=20, seed=seed, **more).correct


def test_counts_do_not_depend_on_the_batch_size_and_the_seed_decides() -> None:
    first = counts()
    for micro_batch in (1, 7, 500):
        np.testing.assert_array_equal(counts(micro_batch), first)
    assert not np.array_equal(counts(seed=1), first)


@pytest.mark.parametrize("after", [1, 2, 4])
def test_an_interrupted_measurement_ends_with_the_same_counts(after: int, tmp_path: Path) -> None:
    whole, seen = counts(), list[int]()

    def interrupt(state: Progress) -> None:
        seen.append(state.done)
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        counts(progress=interrupt, store=FileStore(tmp_path / "blocks", "test", seconds=0))
    store = FileStore(tmp_path / "blocks", "test", seconds=0)
    np.testing.assert_array_equal(counts(store=store), whole)


@pytest.mark.parametrize("calls", [FEWEST_OFFSET_CALLS, 40])
def test_calls_are_kept_to(calls: int) -> None:
    prepared, split = ready(32)
    known, _ = bent()
    watched = GradientCounter(known.module or nn.Identity())
    source = OffsetSearch(0.2, 0.2, calls)
    everything = np.ones(INPUTS, bool)
    tally = measure(
        source, replace(prepared, fast=Classifier(watched)), split, draws=16,
        clean_correct=everything,
    )  # fmt: skip
    forward = tally.calls - INPUTS * 16 - watched.seen
    assert forward == INPUTS * 2 * GRADIENT_DRAWS
    assert source.steps >= 1
    assert 3 * watched.seen + forward <= source.search_passes(INPUTS) == 3 * calls * INPUTS


def test_a_copy_does_not_share_what_was_found() -> None:
    search = OffsetSearch(0.2, 0.2)
    assert replace(search, radius=0.1)._offsets is not search._offsets


def test_rows_tell_the_set_and_the_ends_apart() -> None:
    known, split = linear()
    noise, *searches = make_offset_sources(SIGMA, ["0.01", 0.02])
    assert isinstance(noise, OffsetNoise)
    assert noise.radii == (0.01, 0.02)
    assert noise.name == noise.row_source == "gaussian-offset:sigma=0.02"
    names = [search.name for search in searches]
    assert names == [f"gaussian-offset:sigma=0.02:offset={steps}" for steps in (0.5, 1)]
    tally = measure(searches[1], known, split, draws=20)
    together = searches[1].read(tally, tally, 0.95, 0)
    assert together
    for row in together:
        assert (row.noise_set, row.size, row.reference) == ("offset", 1.0, "N(0, 0.02^2)")
        assert (row.metric, row.confidence) == (Metric.NPPR, 0.95)
    alone = OffsetSearch(SIGMA, 0.02).read(tally, tally, 0.95, 0)
    assert all(b.high >= a.high for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bad_deviation_is_one_clear_line(sigma: float) -> None:
    with pytest.raises(SpecError, match="`sigma` must be a number > 0, got"):
        make_offset_sources(sigma, [0.1])


def test_bad_radii_and_calls_are_one_clear_line() -> None:
    with pytest.raises(BudgetError, match="`radius` must be a number > 0, got '-1'"):
        make_offset_sources(0.1, ["-1"])
    with pytest.raises(
        SpecError, match=f"`search-calls` must be a whole number >= {FEWEST_OFFSET_CALLS}"
    ):
        make_offset_sources(0.1, [0.1], calls=FEWEST_OFFSET_CALLS - 1)
