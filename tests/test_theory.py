"""What the theory states for any search, checked on classifiers whose worst noise is known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nppr import assess
from nppr.core.budget import Budget, perturbed
from nppr.core.random_draws import DRAWS_PER_BLOCK, DrawBlock
from nppr.core.tally import Evaluate, Metric, Tally
from nppr.data import Data, from_arrays
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, PreparedClassifier, prepare
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.noise.mixture import Context
from nppr.report import Report
from nppr.search import SearchSettings, default_settings
from nppr.search.learned_noise import LearnedNoise
from nppr.search.search import NoiseSearch
from nppr.settings import Measure
from nppr.sources import PGD, Uniform
from nppr.sources.learned import Learned

RADIUS = 0.1
W = torch.linspace(-1, 1, 16).reshape(1, 4, 4)


def data_with_margins(w: Tensor, margins: list[float], one_in: int = 2) -> Data:
    """240 images around grey with margins `w . (x - 0.5)`, class 0 where it is positive.

    One in so many is of class 1.
    """
    inputs = 240
    sizes = torch.tensor(margins).repeat(-(-inputs // len(margins)))[:inputs]
    signs = torch.where(torch.arange(inputs) % one_in == 0, -1.0, 1.0)
    images = 0.5 + (sizes * signs / w.square().sum()).view(-1, 1, 1, 1) * w
    return from_arrays(images, (signs < 0).long(), shares=(0.4, 0.3))


def ready(w: Tensor, data: Data) -> PreparedClassifier:
    linear = nn.Linear(w.numel(), 2)
    with torch.no_grad():
        linear.weight.copy_(torch.stack([w.flatten(), torch.zeros(w.numel())]))
        linear.bias.copy_(torch.tensor([-0.5 * float(w.sum()), 0.0]))
    classifier = Classifier(nn.Sequential(nn.Flatten(), linear))
    return prepare(classifier, probe(data.evaluate), classes=2, micro_batch=64)


def quick(family: Family, floors: tuple[float, ...] = (0.0,), calls: int = 8000) -> SearchSettings:
    return default_settings(family, floors=floors, calls=calls, inputs=64).without_positions()


def searched(
    data: Data, classifier: PreparedClassifier, budget: Budget, settings: SearchSettings
) -> list[LearnedNoise]:
    return NoiseSearch(settings, classifier, data, budget).run()


def tally_of(
    outcome: LearnedNoise,
    data: Data,
    classifier: PreparedClassifier,
    budget: Budget,
    draws: int = 64,
) -> Tally[Evaluate]:
    return measure(
        Learned(budget, outcome.source.distribution), classifier, data.evaluate, draws=draws
    )


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("dependency", [Dependency.LABEL, Dependency.JOINT])
def test_without_a_floor_a_linear_classifier_falls_to_its_exact_ar(
    norm: str, dependency: Dependency
) -> None:
    reach = RADIUS * float(W.abs().sum() if norm == "linf" else W.norm())
    data = data_with_margins(W, [0.5 * reach, 0.7 * reach, 1.5 * reach])
    classifier, budget = ready(W, data), Budget.parse(norm, RADIUS)
    *_, outcome = searched(data, classifier, budget, quick(Family(dependency, components=3)))
    tally = tally_of(outcome, data, classifier, budget)
    attack = measure(PGD(budget, steps=20), classifier, data.evaluate)
    exact = float(attack.unbroken.mean())
    assert 0.2 < exact < 0.5
    assert tally.headline_rates.mean() == pytest.approx(exact, abs=0.02)


def test_noise_that_sees_nothing_can_only_break_one_class() -> None:
    reach = RADIUS * float(W.abs().sum())
    data = data_with_margins(W, [0.5 * reach], one_in=4)
    classifier, budget = ready(W, data), Budget.linf(RADIUS)
    (outcome,) = searched(
        data, classifier, budget, quick(Family(Dependency.INDEPENDENT, components=3))
    )
    tally = tally_of(outcome, data, classifier, budget)
    smaller = float((data.evaluate.labels == 1).mean())
    assert tally.headline_rates.mean() == pytest.approx(smaller, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.25, 0.5, 0.75])
def test_a_floor_gives_the_closed_form_of_shifted_uniform_noise_in_one_dimension(
    rho: float,
) -> None:
    # Class 0 with margin m: the worst noise is -(1 - rho) r + rho u, u uniform in [-r, r].
    w, share = torch.ones(1, 1, 1), 0.6
    data = data_with_margins(w, [share * RADIUS])
    classifier, budget = ready(w, data), Budget.linf(RADIUS)
    family = Family(Dependency.LABEL, components=2)
    *_, outcome = searched(data, classifier, budget, quick(family, (rho,), 8000))
    tally = tally_of(outcome, data, classifier, budget, draws=512)
    edge = ((1 - rho) - share) / rho  # correct where u / r is above it
    exact = float(np.clip((1 - edge) / 2, 0, 1))
    assert tally.headline_rates.mean() == pytest.approx(exact, abs=0.06)
    assert tally.headline_rates.mean() >= exact - 0.02


def test_with_all_of_it_random_nppr_is_pr_under_uniform() -> None:
    data = data_with_margins(W, [0.02, 0.05, 0.3])
    classifier, budget = ready(W, data), Budget.linf(RADIUS)
    family = Family(Dependency.LABEL, components=2)
    outcomes = searched(data, classifier, budget, quick(family, (0.0, 1.0), 2000))
    uniform = measure(Uniform(budget), classifier, data.evaluate, draws=32)
    assert [each.record.family.floor for each in outcomes] == [0, 0, 1, 1]
    for outcome in outcomes[2:]:
        tally = tally_of(outcome, data, classifier, budget, draws=32)
        np.testing.assert_array_equal(tally.correct, uniform.correct)


def test_a_larger_radius_warm_started_through_the_scale_is_never_more_robust() -> None:
    reach = RADIUS * float(W.abs().sum())
    data = data_with_margins(W, [0.3 * reach, 0.9 * reach, 1.4 * reach])
    classifier = ready(W, data)
    small, large = Budget.linf(RADIUS), Budget.linf(2 * RADIUS)
    family = Family(Dependency.LABEL, components=2)
    *_, outcome = searched(data, classifier, small, quick(family, calls=6000))
    before = tally_of(outcome, data, classifier, small).correct
    wide = measure(Learned(large, outcome.source.distribution), classifier, data.evaluate, draws=64)
    assert wide.correct.mean() <= before.mean()


@pytest.fixture(scope="module")
def report() -> Report:
    family = Family(Dependency.JOINT, components=3)
    search = default_settings(family, floors=(0.0, 1.0), calls=12_000, inputs=64)
    search = search.without_positions()
    return assess(
        sources="nppr,gaussian,uniform,laplace,pgd",
        search=replace(search, per_input_calls=8),
        measure=Measure(inputs=100, draws=30),
    )


def value(report: Report, source: str, metric: Metric) -> float:
    row = report.headline(source, metric)
    assert row is not None
    assert row.value is not None
    return row.value


@pytest.mark.slow
def test_merged_ar_is_below_nppr_is_below_pr(report: Report) -> None:
    rungs = ["per-input", "joint", "label", "independent"]
    nppr = [value(report, f"nppr:{rung}", Metric.NPPR) for rung in rungs]
    assert value(report, "merged", Metric.AR) <= nppr[0] < nppr[1]
    for lower, higher in itertools.pairwise(nppr):  # chosen on the select split, so up to chance
        assert lower < higher + 0.03
    for noise in ("gaussian", "uniform", "laplace"):
        assert nppr[-1] < value(report, noise, Metric.PR)
    for rung in rungs:
        uniform = value(report, "uniform", Metric.PR)
        assert value(report, f"nppr:{rung}:floor=1", Metric.NPPR) == uniform


@pytest.mark.slow
def test_every_child_of_the_walk_is_at_most_its_parents_on_select(report: Report) -> None:
    joint = next(each for each in report.distributions if each.name == "nppr:joint")
    assert [stage.stage for stage in joint.search.stages] == ["independent", "label", "joint"]
    for stage in joint.search.stages:
        values = stage.select_values
        parents = [name for name in values if not name.startswith(stage.stage)]
        assert bool(parents) == (stage.stage != "independent")
        for parent in parents:
            assert values[stage.selected] <= values[parent] + 1e-6


@pytest.mark.parametrize("budget", [Budget.linf(0.2), Budget.l2(0.8)])
@pytest.mark.parametrize("upsampler", ["none", "bicubic"])
def test_a_floor_bounds_the_standard_deviation_before_clipping_only(
    budget: Budget, upsampler: str
) -> None:
    """`rho r / sqrt(3)` per pixel, in the ball `rho r / sqrt(D + 2)`; images near 0 can lose all."""
    rho, shape = 0.5, (1, 4, 4)
    noise = Distribution(Family(dependency=Dependency.INDEPENDENT, components=1,
                                upsampler=upsampler, floor=rho), shape, 2)  # fmt: skip
    with torch.no_grad():
        for parameter in noise.mixture.parameters():
            parameter.sub_(20.0)  # a pattern at the lower edge, with the least standard deviation
    inputs = tuple(range(512))
    draws = DrawBlock(seed=0, split="evaluate", indices=inputs, block=0, size=DRAWS_PER_BLOCK,
                      device=torch.device("cpu"))  # fmt: skip
    with torch.inference_mode():
        context = Context(torch.zeros(len(inputs), dtype=torch.int64))
        delta = noise.exact(context, draws, budget).flatten(0, 1)
    least = rho * budget.radius / math.sqrt(3 if budget.norm.name == "linf" else 16 + 2)
    assert float(delta.std(0).min()) >= 0.97 * least
    assert float(delta.std(0).max()) <= 1.03 * least  # nothing else is left of the randomness
    black = perturbed(torch.zeros(shape), delta)
    assert float(black.std(0).max()) < (1e-6 if budget.norm.name == "linf" else least)
