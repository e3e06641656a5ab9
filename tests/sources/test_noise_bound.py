"""The bound over all noise of bounded density ratio, on classifiers whose failures are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from helpers import Linear, evaluate_part
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.core.tally import Claim, Evaluate, FloatArray, FrozenModel, Metric, Tally
from nppr.errors import SpecError
from nppr.measuring.measurement import measure
from nppr.models import Classifier
from nppr.sources import PGD, Bound, Clean, Gaussian, Laplace, Uniform, parse_sources
from nppr.statistics.lower_bounds import PerInputDraws, estimate_bounds
from nppr.statistics.noise_sets import Contaminated

pytestmark = pytest.mark.slow

RADIUS = 0.2
BUDGET = Budget.linf(RADIUS)
EDGE = 0.5
"""Class 0 is where the pixel is brighter than this."""

RATIOS = (1.0, 2.0, 5.0, 10.0)

FAILURES = np.array([0.0, 0.02, 0.05, 0.1, 0.15, 0.3, 0.45])
"""Of the inputs of one pixel, under Uniform noise."""


def one_pixel() -> tuple[Classifier, Tensor]:
    """A pixel at x fails where the noise is below EDGE - x: for a share p of [-r, r]."""
    x = EDGE + RADIUS * (1 - 2 * torch.from_numpy(FAILURES))
    return Classifier(Linear(torch.ones(1, 1, 1), -EDGE)), x.view(-1, 1, 1, 1)


def counted(source: Bound | Uniform, draws: int, seed: int = 0) -> Tally[Evaluate]:
    classifier, x = one_pixel()
    part = evaluate_part(x, [0] * len(x))
    return measure(source, classifier, part, classes=2, draws=draws, seed=seed)


def exact(c: float, p: FloatArray = FAILURES) -> FloatArray:
    return np.maximum(0, 1 - c * p)


@dataclass(frozen=True)
class Worst(Uniform):
    """The worst noise of one pixel whose density is at most c times that of Uniform noise.

    It fails with probability min(1, c p), and is uniform where it fails and where it does not.
    """

    c: float = 1.0

    def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
        r = self.budget.radius
        p = ((EDGE - x + r) / (2 * r)).unsqueeze(1)
        fails = draws.uniform("which", tuple(x.shape[1:])) < self.c * p
        u = draws.uniform("where", tuple(x.shape[1:]))
        return 2 * r * torch.where(fails, u * p, p + u * (1 - p)) - r


@pytest.mark.parametrize("c", RATIOS)
def test_the_worst_noise_of_this_density_reaches_the_infimum(c: float) -> None:
    density = np.minimum(1, c * FAILURES) / np.maximum(FAILURES, 1e-12)
    elsewhere = (1 - np.minimum(1, c * FAILURES)) / (1 - FAILURES)
    assert max(density.max(), elsewhere.max()) <= c + 1e-9
    draws = 4000
    found = counted(Worst(BUDGET, c=c), draws).rates
    error = np.sqrt(exact(c) * (1 - exact(c)) / draws)
    assert np.all(np.abs(found - exact(c)) <= 4 * error + 1e-12)


@pytest.mark.parametrize("c", RATIOS)
def test_the_worst_noise_stays_below_this_density(c: float) -> None:
    """Counted in 20 equal cells of [-r, r], of which Uniform noise has 1/20 each."""
    classifier, x = one_pixel()
    part = evaluate_part(x, [0] * len(x))
    seen: list[Tensor] = []

    class Watched(Worst):
        def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
            seen.append(super().perturb(model, x, y, draws))
            return seen[-1]

    measure(Watched(BUDGET, c=c), classifier, part, classes=2, draws=4000)
    for row in torch.cat(seen, 1).flatten(1).double():
        ratio = 20 * np.histogram(row.numpy(), 20, (-RADIUS, RADIUS))[0] / 4000
        assert ratio.max() <= c + 4 * math.sqrt(20 * c / 4000)


@pytest.mark.parametrize("c", RATIOS)
@pytest.mark.parametrize("failing", [0, 1, 5, 30, 100])
def test_no_noise_of_this_density_is_worse(c: float, failing: int) -> None:
    """The smallest PR over all densities on 100 cells, by linear programming."""
    right = (np.arange(100) >= failing) / 100
    found = linprog(right, A_eq=np.full((1, 100), 0.01), b_eq=[1], bounds=(0, c))
    assert found.fun == pytest.approx(max(0, 1 - c * failing / 100), abs=1e-9)


@pytest.mark.parametrize("c", RATIOS)
def test_the_estimate_is_near_the_exact_mean(c: float) -> None:
    draws = 4000
    *_, estimate = estimate_bounds(
        PerInputDraws(counted(Bound(BUDGET), draws)), Contaminated(c), 0.95
    )
    assert estimate.metric is Metric.INFIMUM
    # One standard error of the mean, and what the clip may add where 1 - c p is 0.
    spread = c * np.sqrt(FAILURES * (1 - FAILURES) / draws)
    slack = 4 * math.sqrt((spread**2).sum()) / len(FAILURES) + spread[exact(c) == 0].sum() / 7
    assert estimate.value == pytest.approx(exact(c).mean(), abs=slack)


def test_the_estimate_of_several_pixels_has_a_closed_form() -> None:
    """Four pixels: their sum is below `-4 r + 2 r t` with probability t^4 / 24, t <= 1."""
    t, draws, inputs = 0.9, 2000, 20
    p = t**4 / 24
    classifier = Classifier(Linear(torch.ones(1, 2, 2), -(4 * 0.5 - 4 * RADIUS + 2 * RADIUS * t)))
    part = evaluate_part(torch.full((inputs, 1, 2, 2), 0.5), [0] * inputs)
    tally = measure(Bound(BUDGET), classifier, part, classes=2, draws=draws)
    for c in RATIOS:
        slack = 4 * c * math.sqrt(p * (1 - p) / (draws * inputs))
        here, everywhere, estimate = estimate_bounds(PerInputDraws(tally), Contaminated(c), 0.95)
        assert estimate.value == pytest.approx(1 - c * p, abs=slack)
        assert 1 - c * p - 0.1 < here.value < 1 - c * p
        assert everywhere.value < 1 - c * p


@pytest.mark.parametrize("c", RATIOS)
def test_both_bounds_are_below_the_truth(c: float) -> None:
    """In every one of 20 runs: each misses in at most 0.1 % of them."""
    for seed in range(20):
        here, everywhere, _ = estimate_bounds(
            PerInputDraws(counted(Bound(BUDGET), 50, seed)), Contaminated(c), 0.999
        )
        assert here.value <= exact(c).mean()
        assert everywhere.value <= exact(c).mean()
        assert min(here.value, everywhere.value) >= 0


@pytest.mark.parametrize(
    ("name", "source"),
    [("uniform", Uniform(BUDGET)), ("gaussian", Gaussian(BUDGET)), ("laplace", Laplace(BUDGET))],
)
def test_its_draws_are_those_of_the_reference(name: str, source: Uniform) -> None:
    """So that a ratio of 1 is PR."""
    bound, plain = counted(Bound(BUDGET, reference=name), 40, 3), counted(source, 40, 3)
    assert 0 < bound.correct.sum() < 40 * len(FAILURES)
    assert np.array_equal(bound.correct, plain.correct)
    assert bound.calls == plain.calls
    clean = counted(Bound(BUDGET), 1)
    pr = source.read(plain, clean, 0.95, 0)[0]
    *_, estimate = Bound(BUDGET, name, ratio="1").read(bound, clean, 0.95, 0)
    assert pr.metric is Metric.PR
    assert estimate.value == pytest.approx(pr.value, abs=1e-12)


def test_inputs_that_are_wrong_without_noise_do_not_count() -> None:
    classifier, x = one_pixel()
    wrong = torch.full((5, 1, 1, 1), EDGE - 0.01)
    part = evaluate_part(torch.cat([x, wrong]), [0] * (len(x) + 5))
    tally = measure(Bound(BUDGET), classifier, part, classes=2, draws=30)
    clean = measure(Clean(), classifier, part, classes=2)
    assert clean.correct.sum() == len(x)
    alone = counted(Bound(BUDGET), 30)
    for c in RATIOS:
        both = [
            estimate_bounds(PerInputDraws(each), Contaminated(c), 0.95) for each in (tally, alone)
        ]
        assert [row.value for row in both[0]] == [row.value for row in both[1]]
        assert {row.inputs for row in both[0]} == {len(x)}


def test_a_report_has_two_bounds_and_an_estimate_for_every_ratio() -> None:
    source = Bound(BUDGET, "gaussian", ratio="1+2.5")
    tally = counted(source, 30)
    rows = source.read(tally, counted(source, 1), 0.9, 0)
    assert {row.reference for row in rows} == {"gaussian"}
    assert [(row.density_ratio, row.metric, row.claim) for row in rows] == [
        (c, metric, claim)
        for c in (1.0, 2.5)
        for metric, claim in (
            (Metric.BOUND, Claim.TEST_SET),
            (Metric.BOUND, Claim.POPULATION),
            (Metric.INFIMUM, Claim.POPULATION),
        )
    ]


def test_ratios_are_written_with_plus() -> None:
    (made,) = parse_sources("bound:reference=laplace:ratio=1+50", BUDGET)
    assert made == Bound(BUDGET, "laplace", ratio="1+50")
    assert made.name == "bound:reference=laplace:ratio=1+50"
    assert Bound(BUDGET).name == "bound"
    assert Bound(BUDGET).noise_sets == tuple(map(Contaminated, RATIOS))
    assert Bound(BUDGET, ratio="1+1e9").noise_sets == (Contaminated(1), Contaminated(1e9))


@pytest.mark.parametrize(
    "ratio", ["", "0.5", "0.999", "two", "1+", "+1", "1,10", "-2", "nan", "inf", "2e9"]
)
def test_bad_ratios_are_named(ratio: str) -> None:
    with pytest.raises(SpecError, match="`density-ratio` must be "):
        Bound(BUDGET, ratio=ratio)


@pytest.mark.parametrize("ratio", ["1+1", "10+1+10.0"])
def test_a_ratio_is_named_once(ratio: str) -> None:
    with pytest.raises(SpecError, match="`density-ratio` must name every number once"):
        Bound(BUDGET, ratio=ratio)


@pytest.mark.parametrize("reference", ["unifrm", "pgd", ""])
def test_a_reference_is_noise(reference: str) -> None:
    with pytest.raises(SpecError, match="`reference` must be one of gaussian, laplace, uniform"):
        Bound(BUDGET, reference=reference)


def test_patterns_are_shared_by_all_inputs() -> None:
    source = Bound(BUDGET, patterns=21)
    classifier, x = one_pixel()
    seen: list[Tensor] = []

    class Watched(Bound):
        def perturb(self, model: FrozenModel, x: Tensor, y: Tensor, draws: DrawBlock) -> Tensor:
            seen.append(super().perturb(model, x, y, draws))
            return seen[-1]

    part = evaluate_part(x, [0] * len(x))
    tally = measure(Watched(BUDGET, patterns=21), classifier, part, classes=2, draws=5)
    patterns = torch.cat(seen, 1)
    assert patterns.shape[:2] == (len(x), 21)
    assert bool((patterns == patterns[:1]).all())
    assert len(patterns[0].unique()) == 21
    assert tally.draws == 21
    assert tally.outcomes is not None
    bits = np.unpackbits(tally.outcomes, axis=1, count=21)
    assert np.array_equal(bits.sum(1), tally.correct)
    moved = (x[:, None] + patterns).flatten(2).squeeze(2).clip(0, 1)
    assert np.array_equal(bits.astype(bool), (moved > EDGE).numpy())
    assert source.fixed_draws == 21
    assert counted(Bound(BUDGET), 5).outcomes is None


def test_noise_that_does_not_see_the_input_is_bounded_by_its_worst_patterns() -> None:
    """Every input fails at the lowest noise, so for c = 2 the worst patterns are the lower half."""
    source = Bound(BUDGET, ratio="2", patterns=4000)
    rows = source.read(counted(source, 1), counted(source, 1), 0.95, 0)
    truth = 1 - float(np.minimum(1, 2 * FAILURES).mean())
    here, everywhere, estimate = rows
    assert truth - 0.03 < here.value < truth
    assert everywhere.value < here.value
    assert estimate.value == pytest.approx(truth, abs=0.03)
    assert {row.sees_input for row in rows} == {False}


def test_with_a_level_the_largest_set_is_read() -> None:
    source = Bound(BUDGET, set="tv", least=0.5)
    here, everywhere = source.read(counted(source, 500), counted(source, 1), 0.95, 0)
    assert here.value == 0.5
    assert everywhere.size == 0  # seven inputs show less than that about the population
    assert everywhere.value < 0.5
    assert here.noise_set == "tv"
    assert here.size is not None
    low, high = (
        estimate_bounds(PerInputDraws(counted(source, 500)), Contaminated(1, size), 0.95)[0].value
        for size in (here.size, here.size + 0.02)
    )
    assert low >= 0.5 > high


@pytest.mark.parametrize("made", [{"patterns": -1}, {"least": 1.0}, {"set": "tv", "size": "2"}])
def test_bad_options_are_named(made: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="must"):
        Bound(BUDGET, **made)


def test_a_given_reference_must_be_drawn() -> None:
    with pytest.raises(SpecError, match="`reference` must be noise that is drawn, got 'pgd'"):
        Bound(BUDGET, "pgd", given=PGD(BUDGET))
