"""The rung per-input: its budget, closed forms, choice, and that it can be reproduced."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import GradientCounter, Linear, evaluate_part, half_classifier, two_class_data
from nppr import assess
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Evaluate, IntArray, Metric, Progress, Tally
from nppr.data import Data, Split, from_arrays
from nppr.doctor.flags import NO_GRADIENTS
from nppr.errors import SpecError
from nppr.measuring.blocks import FileStore
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, PreparedClassifier, frozen, prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.search_settings import default_settings
from nppr.settings import Measure
from nppr.sources import Uniform
from nppr.sources.learned import Learned
from nppr.sources.per_input_noise import CHOICE_DRAWS, PerInputNoise

CPU, RADIUS, INPUTS = torch.device("cpu"), 0.1, 150
W = torch.linspace(-1, 1, 16).reshape(1, 4, 4)
BUDGETS = [Budget.linf(RADIUS), Budget.l2(2 * RADIUS)]


def parent(
    budget: Budget, shape: tuple[int, int, int] = (1, 4, 4), seed: int = 0, **changes: Any
) -> Learned:
    """Noise that was not fitted."""
    torch.manual_seed(seed)
    family = Family(Dependency.LABEL, components=2).with_(**changes)
    return Learned(budget, Distribution(family, shape, 2).eval())


def around_grey(w: Tensor, margins: list[float]) -> tuple[Classifier, Split[Evaluate]]:
    """Images around grey with margins `w . (x - 0.5)` of both signs, and the classifier."""
    signs = torch.where(torch.arange(len(margins)) % 2 == 0, 1.0, -1.0)
    along = (torch.tensor(margins) * signs / w.square().sum()).view(-1, 1, 1, 1)
    split = evaluate_part(0.5 + along * w, (signs < 0).long())
    return Classifier(Linear(w, -0.5 * float(w.sum()))), split


def block(inputs: int, seed: int = 0, number: int = 0) -> DrawBlock:
    return DrawBlock(seed, "evaluate", tuple(range(inputs)), number, 5, CPU)


@pytest.mark.parametrize("structure", ["white", "stationary"])
@pytest.mark.parametrize("scores", [False, True])
def test_below_structured_noise_it_searches_for_a_pattern(structure: str, scores: bool) -> None:
    known, split = around_grey(W, [0.4 * RADIUS * float(W.norm())] * 12)
    above = parent(BUDGETS[0], structure=structure)
    own, before = (
        measure(each, known, split, draws=16)
        for each in (PerInputNoise(above, calls=12, scores=scores), above)
    )
    assert own.rates.mean() < before.rates.mean()


@pytest.mark.parametrize("floor", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("upsampler", ["none", "bicubic"])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_it_stays_in_the_budget_and_finds_worse_noise_than_its_parent(
    budget: Budget, upsampler: str, floor: float
) -> None:
    known, split = around_grey(W, [0.4 * budget.radius * float(W.norm())] * 12)
    above = parent(
        budget, upsampler=upsampler, floor=floor, grid=2 if upsampler != "none" else None
    )
    x, y = split.batch(np.arange(12))
    source = PerInputNoise(above, calls=8)
    with frozen(known) as model:
        delta = source.perturb(model, x, y, block(12))
    assert delta.shape == (12, 5, 1, 4, 4)
    budget.require(delta, source.name)
    own, before = (measure(each, known, split, draws=16) for each in (source, above))
    if floor < 1:
        assert own.correct.sum() < before.correct.sum()
    else:
        np.testing.assert_array_equal(own.correct, before.correct)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_on_a_linear_classifier_it_is_the_worst_direction(budget: Budget) -> None:
    """Inputs break that the ball's worst point `-r` steepest w reaches, and no others."""
    reach = budget.radius * float(W.abs().sum() if budget.norm.name == "linf" else W.norm())
    shares = [0.3, 0.6, 0.9, 1.1, 1.5]
    known, split = around_grey(W, [share * reach for share in shares for _ in range(2)])
    tally = measure(PerInputNoise(parent(budget), calls=20), known, split, draws=32)
    assert tally.clean_correct.all()
    broken = np.repeat(np.array(shares) < 1, 2)
    np.testing.assert_array_equal(tally.correct, np.where(broken, 0, 32))
    x, y = split.batch(np.arange(len(split)))
    source = PerInputNoise(parent(budget), calls=20)
    with frozen(known) as model:
        delta = source.perturb(model, x, y, block(len(x)))
    sides = torch.where(y == 0, -1.0, 1.0).view(-1, 1, 1, 1, 1)
    worst = budget.radius * sides * budget.norm.steepest(W)
    assert float((delta - worst).abs().max()) < 0.15 * float(worst.abs().max())


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("rho", [0.25, 0.5, 0.75])
def test_a_floor_gives_the_closed_form_in_one_dimension(norm: str, rho: float) -> None:
    # Margin m: the worst noise is -(1 - rho) r tanh(3) + rho u, with u uniform in [-r, r].
    w, share = torch.ones(1, 1, 1), 0.6
    known, split = around_grey(w, [share * RADIUS] * 40)
    above = parent(Budget.parse(norm, RADIUS), (1, 1, 1), floor=rho)
    tally = measure(PerInputNoise(above, calls=12), known, split, draws=256)
    edge = ((1 - rho) * np.tanh(3.0) - share) / rho  # correct where u / r is above it
    exact = float(np.clip((1 - edge) / 2, 0, 1))
    assert tally.headline_rates.mean() == pytest.approx(exact, abs=0.025)


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_with_floor_1_it_is_uniform_noise(budget: Budget) -> None:
    known, split = around_grey(W, [0.05] * 20)
    source = PerInputNoise(parent(budget, floor=1.0))
    own, uniform = (measure(each, known, split, draws=20) for each in (source, Uniform(budget)))
    np.testing.assert_array_equal(own.correct, uniform.correct)
    assert own.calls == uniform.calls, "nothing is searched for"


@cache
def bent() -> tuple[Classifier, Split[Evaluate]]:
    """A small network whose worst noise is not known, with the labels it gives."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 2)).eval()
    images = torch.rand(INPUTS, 1, 4, 4)
    with torch.no_grad():
        last = network[3]
        assert isinstance(last, nn.Linear)
        last.bias.sub_(network(images).mean(0))
        labels = network(images).argmax(1)
    return Classifier(network), evaluate_part(images, labels)


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), calls=st.integers(5, 9), floor=st.sampled_from([0.0, 0.3, 0.8]))
def test_on_the_draws_it_chooses_with_it_is_never_above_its_parent(
    seed: int, calls: int, floor: float
) -> None:
    known, split = bent()
    above = parent(Budget.linf(RADIUS), seed=seed % 7, floor=floor)
    source = PerInputNoise(above, calls)
    x, y = split.batch(np.arange(40))
    draws = block(40, seed)
    chosen = replace(
        draws, split="evaluate/per-input", block=source.steps + 1, size=CHOICE_DRAWS,
        capacity=CHOICE_DRAWS,
    )  # fmt: skip

    def correct(delta: Tensor) -> Tensor:
        images = (x.unsqueeze(1) + delta).clamp(0, 1).flatten(0, 1)
        answers = model.logits(images).argmax(1).view(40, CHOICE_DRAWS)
        return (answers == y[:, None]).sum(1)

    with frozen(known) as model:
        means, found = source._search(model, x, y, draws)
        before = correct(above.perturb(model, x, y, chosen))
        own = correct(source._draw(means, chosen))
    after = torch.where(found, own, before)
    assert bool((after <= before).all())
    assert bool((own < before)[~found].sum() == 0), "what is better is taken"


def ready(micro_batch: int, classifier: Classifier, split: Split[Evaluate]) -> PreparedClassifier:
    return prepare(classifier, probe(split), classes=2, micro_batch=micro_batch)


def tally(micro_batch: int = 32, seed: int = 0, **more: Any) -> Tally[Evaluate]:
    known, split = bent()
    source = PerInputNoise(parent(Budget.linf(RADIUS), floor=0.7), calls=6)
    model = ready(micro_batch, known, split)
    return measure(source, model, split, draws=20, seed=seed, **more)


def counts(micro_batch: int = 32, seed: int = 0) -> IntArray:
    return tally(micro_batch, seed).correct


def test_counts_do_not_depend_on_the_batch_size_and_the_seed_decides() -> None:
    first = counts()
    for micro_batch in (1, 7, 500):
        np.testing.assert_array_equal(counts(micro_batch), first)
    assert not np.array_equal(counts(seed=1), first)


def test_one_source_measured_with_two_seeds_searches_twice() -> None:
    known, split = bent()
    model, source = ready(32, known, split), PerInputNoise(parent(Budget.linf(RADIUS)), calls=6)
    small = replace(split, indices=split.indices[:40], labels=split.labels[:40])
    x, y = small.batch(np.arange(40))
    with model.frozen() as models:
        first, other = (source.perturb(models.fast, x, y, block(40, seed)) for seed in (0, 1))
        fresh = PerInputNoise(source.parent, source.calls).perturb(models.fast, x, y, block(40, 1))
    assert torch.equal(other, fresh)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("after", [1, 2, 4])
def test_an_interrupted_measurement_ends_with_the_same_counts(after: int, tmp_path: Path) -> None:
    whole, seen = tally(), list[int]()

    def interrupt(state: Progress) -> None:
        seen.append(state.done)
        if len(seen) == after:
            raise KeyboardInterrupt

    store = FileStore(tmp_path / "blocks", "test", seconds=0)
    with pytest.raises(KeyboardInterrupt):
        tally(progress=interrupt, store=store)
    left: list[int] = []
    store = FileStore(tmp_path / "blocks", "test", seconds=0)
    found = tally(progress=lambda state: left.append(state.done), store=store)
    np.testing.assert_array_equal(found.correct, whole.correct)
    assert found.calls == whole.calls, "a search that is repeated is counted once"
    assert left[0] > seen[-1], "what was measured is not measured again"


def test_calls_are_kept_to() -> None:
    for calls in (5, 8, 20):
        known, split = bent()
        model = GradientCounter(known.module or nn.Identity())
        small = replace(split, indices=split.indices[:30], labels=split.labels[:30])
        ready_model = ready(32, known, split)
        ready_model = replace(ready_model, fast=Classifier(model))
        source = PerInputNoise(parent(Budget.linf(RADIUS)), calls)
        everything = np.ones(30, bool)
        tally = measure(source, ready_model, small, draws=16, clean_correct=everything)
        assert model.seen == 30 * source.steps
        forward = tally.calls - 30 * 16 - model.seen  # the starts and the choice
        assert forward == 30 * (2 + 2 * CHOICE_DRAWS)
        passes = 3 * model.seen + forward
        assert passes <= source.search_passes(30) == 3 * calls * 30
        assert source.steps >= 1


def test_it_is_a_row_of_its_own() -> None:
    source = PerInputNoise(parent(Budget.linf(RADIUS), floor=0.5))
    assert source.name == "nppr:per-input:floor=0.5"
    assert (source.row_source, source.metric) == ("nppr", Metric.NPPR)
    assert (source.dependency, source.floor) == (Dependency.PER_INPUT, 0.5)
    moved = source.at(Budget.linf(0.3))
    assert (moved.budget, moved.calls, moved.name) == (Budget.linf(0.3), 20, source.name)


def test_images_of_another_shape_are_one_clear_line() -> None:
    known, split = around_grey(torch.ones(1, 3, 5), [0.1] * 4)
    with pytest.raises(SpecError, match=r"perturbs images of shape \(1, 4, 4\), got \(1, 3, 5\)"):
        measure(PerInputNoise(parent(Budget.linf(RADIUS))), known, split, draws=4)


def halves() -> Data:
    images = torch.rand(120, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    labels = (images[..., :2].sum((1, 2, 3)) <= images[..., 2:].sum((1, 2, 3))).long()
    return from_arrays(images, labels, shares=(0.4, 0.3))


@pytest.mark.slow
def test_a_model_without_gradients_has_one_skipped_row_for_all_rungs() -> None:
    model = half_classifier()

    def answers(images: Tensor) -> Tensor:
        with torch.no_grad():
            found: Tensor = model(images)
        return found

    small = default_settings(Family(Dependency.LABEL), calls=128, inputs=32)
    small = replace(small, method="gradients")  # by itself it would be searched by scores
    report = assess(
        answers,
        halves(),
        budget=Budget.linf(RADIUS),
        sources="nppr,uniform",
        search=small,
        measure=Measure(draws=4),
    )
    (row,) = [row for row in report.numbers if row.metric is Metric.NPPR]
    assert row.value is None
    assert row.flags == (NO_GRADIENTS,)
    assert report.ladder == ()
    uniform = report.headline("uniform", Metric.PR)
    assert uniform is not None
    assert uniform.value is not None


@pytest.mark.slow
def test_an_assessment_goes_down_to_it_and_describes_the_search() -> None:
    small = default_settings(Family(Dependency.LABEL), floors=(0.0, 0.5), calls=256, inputs=32)
    small = small.without_positions()
    report = assess(
        half_classifier(),
        halves(),
        budget=Budget.linf(0.05),
        sources="nppr,uniform",
        search=replace(small, per_input_calls=8),
        measure=Measure(draws=16),
    )
    rungs = {rung.name: rung for rung in report.ladder}
    names = [f"nppr:{rung}" for rung in ("independent", "label", "per-input")]
    assert list(rungs) == [
        "nppr:independent", "nppr:label", "nppr:independent:floor=0.5", "nppr:label:floor=0.5",
        "nppr:per-input", "nppr:per-input:floor=0.5",
    ]  # fmt: skip
    for floor in ("", ":floor=0.5"):
        values = [rungs[name + floor].value for name in names]
        assert values == sorted(values, reverse=True)
        for name in names:
            row = report.headline(name + floor, Metric.NPPR)
            assert row is not None
            assert row.value == rungs[name + floor].value
    own = rungs["nppr:per-input"]
    assert own.calls == 8
    assert own.curve is not None
    assert own.curve.rounds[-1] == own.value  # all inputs are among the first hundred
    assert (len(own.curve.rounds), len(own.curve.restarts)) == (2, 2)
    assert rungs["nppr:label:floor=0.5"].smaller_radius is not None
    assert rungs["nppr:label"].smaller_radius is None
    assert {rungs[name].strongest for name in names} == {"uniform"}
    alone = assess(
        half_classifier(),
        two_class_data(20),
        budget=Budget.linf(0.05),
        sources="uniform",
        measure=Measure(draws=4),
    )
    assert alone.ladder == ()
