"""Levels, moves, and runs against closed forms."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta, kstest, norm, truncnorm
from torch import Tensor, nn

from helpers import evaluate_part
from nppr.core.budget import Budget
from nppr.errors import ClassifierError
from nppr.models import Classifier, PreparedClassifier, prepare
from nppr.rare import Status
from nppr.rare.latent_noise import make_latent
from nppr.rare.splitting import (
    LOG_FLOOR,
    MOVES,
    SMALLEST_STEP,
    TARGET_ACCEPTANCE,
    Levels,
    MarginJudge,
    SplittingRun,
    adapt,
    propose,
    run_splitting,
)
from nppr.sources import Gaussian, Laplace, Source, Uniform

pytestmark = pytest.mark.slow


def levels(limit: int = 10_000, floor: float = LOG_FLOOR) -> Levels:
    return Levels(floor, limit)


def test_the_best_survive_and_log_p_adds_up() -> None:
    state = levels()
    margins = np.linspace(-10.0, -1.0, 100)
    survivors = state.settle(margins)
    assert len(survivors) == 100 // MOVES
    assert state.level == margins[79]
    assert (margins[survivors] > state.level).all()
    assert state.log_p == pytest.approx(math.log(0.2))
    assert state.variance == pytest.approx(0.8 / 20)
    later = np.linspace(-5.0, 1.0, 100)
    failing = int((later >= 0).sum())
    state.settle(later + 2.0)  # more than enough fail
    failing = int((later + 2.0 >= 0).sum())
    assert state.status is Status.FOUND
    assert state.level == 0.0
    assert state.log_p == pytest.approx(math.log(0.2) + math.log(failing / 100))
    assert state.calls == 200


def test_a_margin_of_zero_is_a_failure() -> None:
    state = levels()
    state.settle(np.zeros(100))
    assert state.status is Status.FOUND
    assert state.log_p == 0.0


def test_ties_at_the_level_do_not_survive() -> None:
    state = levels()
    margins = np.array([-3.0] * 90 + [-1.0] * 10)
    survivors = state.settle(margins)
    assert survivors.tolist() == list(range(90, 100))
    assert state.log_p == pytest.approx(math.log(0.1))


def test_the_best_survive_together_if_tied() -> None:
    state = levels()
    survivors = state.settle(np.array([-3.0] * 40 + [-1.0] * 60))
    assert survivors.tolist() == list(range(40, 100))
    assert state.level == -3.0
    assert state.log_p == pytest.approx(math.log(0.6))


def test_equal_margins_are_counted_until_one_differs() -> None:
    state = levels()
    for _ in range(3):
        assert len(state.settle(np.full(100, -1.0))) == 100
    assert state.log_p == 0.0
    survivors = state.settle(np.array([-1.0] * 99 + [-0.5]))
    assert survivors.tolist() == [99]
    assert state.log_p == pytest.approx(math.log(1 / 400))


def test_equal_margins_end_at_the_floor() -> None:
    state = levels(floor=math.log(1 / 250))
    ended = 0
    while state.status is None:
        state.settle(np.full(100, -1.0))
        ended += 1
    assert (ended, state.status) == (3, Status.BELOW)
    assert state.log_p == pytest.approx(math.log(1 / 300))


def test_below_the_floor_it_ends() -> None:
    state = levels(floor=math.log(0.1))
    assert len(state.settle(np.linspace(-9, -5, 100)))
    assert not len(state.settle(np.linspace(-4, -3, 100)))
    assert state.status is Status.BELOW
    assert state.log_p == pytest.approx(math.log(0.04))


def test_calls_are_not_exceeded() -> None:
    state = levels(limit=299)
    assert len(state.settle(np.linspace(-9, -5, 100)))
    assert not len(state.settle(np.linspace(-4, -3, 100)))
    assert (state.calls, state.status) == (200, Status.OUT_OF_CALLS)
    exact = levels(limit=300)
    exact.settle(np.linspace(-9, -5, 100))
    assert len(exact.settle(np.linspace(-4, -3, 100)))


def test_few_failures_count_where_calls_end() -> None:
    state = levels(limit=150)
    state.settle(np.array([-1.0] * 97 + [0.1, 0.2, 0.3]))
    assert state.status is Status.FOUND
    assert state.log_p == pytest.approx(math.log(0.03))


NONE = slice(0, 0)


@pytest.mark.parametrize("beta", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("choosing", [NONE, slice(1, 2)])
def test_the_move_leaves_the_normal_law_as_it_is(beta: float, choosing: slice) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1, 20_000, 3, generator=generator)
    start = z.clone()
    for _ in range(20):
        noise = torch.randn(z.shape, generator=generator)
        switch = torch.rand(z.shape[:2], generator=generator) if choosing.stop else None
        z, _ = propose(z, torch.tensor([beta]), noise, choosing, switch)
    for column in range(3):
        assert kstest(z[0, :, column].numpy(), "norm").pvalue > 1e-3
    covariance = torch.cov(z[0].T)
    assert torch.allclose(covariance, torch.eye(3), atol=0.04)
    moved = float((z * start).mean((0, 1))[0])
    assert moved == pytest.approx((1 - beta**2) ** 10, abs=0.04)


def test_components_are_drawn_afresh_or_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    z, noise = (torch.randn(1, 4_000, 3, generator=generator) for _ in range(2))
    switch = torch.rand(1, 4_000, generator=generator)
    moved, switching = propose(z, torch.tensor([0.5]), noise, slice(1, 2), switch)
    assert switching.double().mean() == pytest.approx(0.25, abs=0.03)
    assert torch.equal(moved[switching][:, 1], noise[switching][:, 1])
    assert torch.equal(moved[~switching][:, 1], z[~switching][:, 1])
    # All other coordinates take the same small step.
    other = [0, 2]
    step, _ = propose(z, torch.tensor([0.5]), noise, NONE, None)
    assert torch.equal(moved[..., other], step[..., other])


def test_chains_above_a_level_keep_the_law_above_it() -> None:
    generator = torch.Generator().manual_seed(1)
    law = truncnorm(2.0, float("inf"))
    z = torch.tensor(law.rvs(20_000, random_state=2)).float()[None, :, None]
    beta = torch.tensor([0.5], dtype=torch.float64)
    for _ in range(10):
        noise = torch.randn(z.shape, generator=generator)
        candidates, switching = propose(z, beta.float(), noise, NONE, None)
        accepted = candidates[..., 0] > 2.0
        z = torch.where(accepted[..., None], candidates, z)
        beta = adapt(beta, accepted, switching)
    assert kstest(z.flatten().numpy(), law.cdf).pvalue > 1e-3
    assert accepted.double().mean() == pytest.approx(TARGET_ACCEPTANCE, abs=0.05)


def test_steps_shrink_when_moves_fail_and_grow_when_they_succeed() -> None:
    beta = torch.full((3,), 0.5, dtype=torch.float64)
    accepted = torch.tensor([[False] * 4, [True] * 4, [True, False, False, False]])
    calm = torch.zeros(3, 4, dtype=torch.bool)
    low, high, _ = adapt(beta, accepted, calm).tolist()
    assert low < 0.5 < high
    # Points that tried another component do not count.
    switching = torch.tensor([[False] * 4, [False] * 4, [False, True, True, True]])
    assert adapt(beta, accepted, switching)[2] == adapt(beta, accepted, calm)[1]
    for _ in range(50):
        beta = adapt(beta, accepted, calm)
    assert beta[0] == SMALLEST_STEP
    assert beta[1] == 1.0


def test_rows_have_their_own_step() -> None:
    z, noise = torch.ones(2, 3, 4), torch.zeros(2, 3, 4)
    moved, _ = propose(z, torch.tensor([0.6, 1.0]), noise, NONE, None)
    assert torch.allclose(moved[0], torch.tensor(0.8))
    assert torch.equal(moved[1], noise[1])


GREY = 0.5

CPU = torch.device("cpu")

Source = Source


class Rows(nn.Module):
    """Fails where `sum(x - 1/2) / sqrt(D) >= threshold`; each row is summed by itself, in double."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(threshold, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        pixels = (x.double() - GREY).flatten(1).unbind(1)
        total = torch.stack(pixels).cumsum(0)[-1] / math.sqrt(len(pixels))
        return torch.stack([self.threshold - total, torch.zeros_like(total)], 1)


def ready(threshold: float, side: int, micro_batch: int = 512) -> PreparedClassifier:
    images = torch.full((2, 1, side, side), GREY)
    return prepare(Classifier(Rows(threshold)), images, classes=2, micro_batch=micro_batch)


def run(
    source: Source,
    classifier: PreparedClassifier,
    side: int,
    runs: list[SplittingRun],
    *,
    particles: int = 500,
    limit: int = 50_000,
    seed: int = 0,
    images: Tensor | None = None,
) -> list[Levels]:
    count = 1 + max(one.position for one in runs)
    images = torch.full((count, 1, side, side), GREY) if images is None else images
    part = evaluate_part(images, [0] * count)
    with classifier.frozen() as models, torch.inference_mode():
        x, y = part.batch(np.arange(1))
        judge = MarginJudge(
            models.fast, make_latent(source, models.fast, x, y), classifier.micro_batch
        )
        outcomes = run_splitting(
            judge, part, runs, particles=particles, limit=limit, seed=seed, device=CPU
        )
        assert models.fast.calls == judge.calls == sum(one.calls for one in outcomes)
    return outcomes


def irwin_hall(p: float) -> float:
    t: float = (24 * p) ** 0.25
    return (0.8 - 0.4 * t) / 2


CASES = [
    (Gaussian(Budget.linf(0.5), 0.02), 6, lambda p: 0.01 * norm.isf(p)),
    (Gaussian(Budget.l2(0.6), 0.1), 6, lambda p: 0.01 * norm.isf(p)),
    (Uniform(Budget.linf(0.2)), 2, irwin_hall),
    (Uniform(Budget.l2(0.4)), 4, lambda p: 0.4 * (2 * beta.isf(p, 8.5, 8.5) - 1)),
    (Laplace(Budget.linf(0.5), 0.02), 1, lambda p: -0.01 * math.log(2 * p)),
]


@pytest.mark.parametrize("p", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("source", "side", "threshold"), CASES)
def test_closed_forms(source: Source, side: int, threshold, p: float) -> None:  # type: ignore[no-untyped-def]
    runs = [SplittingRun(position) for position in range(12)]
    outcomes = run(source, ready(float(threshold(p)), side), side, runs)
    assert all(one.status is Status.FOUND for one in outcomes)
    error = np.array([one.log_p for one in outcomes]) - math.log(p)
    spread = error.std(ddof=1)
    ideal = math.sqrt(np.mean([one.variance for one in outcomes]))
    # Chains are correlated, but not very much.
    assert 0.4 * ideal < spread < 3 * ideal
    mean = math.log(np.exp(error).mean())
    assert abs(mean) < 4 * spread / math.sqrt(12)
    expected = math.ceil(math.log(1 / p) / math.log(5))
    assert all(abs(one.passed - expected) <= 1 for one in outcomes)
    assert all(one.calls == 500 * one.passed for one in outcomes)


def test_an_input_that_always_fails() -> None:
    (outcome,) = run(Gaussian(Budget.linf(0.1)), ready(-1.0, 2), 2, [SplittingRun(0)])
    assert outcome == Levels(
        LOG_FLOOR, 50_000, 0.0, 0.0, 0.0, 500, failures=500, passed=1, status=Status.FOUND
    )


def test_an_input_that_never_fails() -> None:
    """Four pixels of at most 1/10 each cannot reach half a sum of 1/4."""
    (outcome,) = run(Uniform(Budget.linf(0.1)), ready(0.25, 2), 2, [SplittingRun(0)])
    assert outcome.status is Status.BELOW
    assert math.log(1e-12) - math.log(5.1) < outcome.log_p < math.log(1e-12)
    assert outcome.calls == 500 * 18


def test_a_classifier_of_one_answer_ends_out_of_calls() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([1.0, 0.0]).expand(len(x), 2) + 0 * x.flatten(1)[:, :1]

    images = torch.full((2, 1, 2, 2), GREY)
    classifier = prepare(Classifier(Constant()), images, classes=2, micro_batch=64)
    (outcome,) = run(Gaussian(Budget.linf(0.1)), classifier, 2, [SplittingRun(0)], limit=5_200)
    assert (outcome.status, outcome.passed) == (Status.OUT_OF_CALLS, 0)
    assert (outcome.log_p, outcome.variance, outcome.calls) == (-math.log(5_000), 0.0, 5_000)


def test_calls_end_a_run() -> None:
    classifier = ready(0.01 * float(norm.isf(1e-8)), 3)
    source = Gaussian(Budget.linf(0.5), 0.02)
    (outcome,) = run(source, classifier, 3, [SplittingRun(0)], limit=2_700)
    assert outcome.status is Status.OUT_OF_CALLS
    assert outcome.calls == 2_500
    # A little less: states that chains repeat are tied at the level.
    assert outcome.log_p == pytest.approx(5 * math.log(0.2), abs=0.05)


def test_rarer_failures_are_less_probable() -> None:
    """The same random numbers meet ever higher thresholds: levels are passed in the same order."""
    source = Gaussian(Budget.linf(0.5), 0.02)
    found = [
        run(source, ready(0.01 * float(norm.isf(p)), 3), 3, [SplittingRun(0)])[0]
        for p in (1e-1, 1e-2, 1e-3, 1e-5, 1e-7)
    ]
    logs = [one.log_p for one in found]
    assert logs == sorted(logs, reverse=True)
    assert [one.calls for one in found] == sorted(one.calls for one in found)


def varied() -> Tensor:
    """Inputs of different brightness, some close to failing, some far from it."""
    return GREY + torch.linspace(-0.03, 0.03, 8).view(8, 1, 1, 1).expand(8, 1, 3, 3)


SOURCES: list[Source] = [
    Gaussian(Budget.linf(0.5), 0.05),
    Uniform(Budget.l2(0.2)),
    Laplace(Budget.l2(0.3)),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_the_micro_batch_and_other_inputs_do_not_matter(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    threshold, images = 0.15, varied()
    runs = [SplittingRun(position, replicate) for position in range(8) for replicate in range(2)]
    whole = run(source, ready(threshold, 3), 3, runs, particles=100, images=images)
    assert len({one.log_p for one in whole}) > 10
    assert len({one.passed for one in whole}) > 3
    assert run(source, ready(threshold, 3, 7), 3, runs, particles=100, images=images) == whole
    alone = [
        run(source, ready(threshold, 3), 3, [one], particles=100, images=images[: one.position + 1])
        for one in runs[::5]
    ]
    assert [outcome for (outcome,) in alone] == whole[::5]
    # Little memory: few runs at once, and few images.
    monkeypatch.setattr(sys.modules["nppr.rare.splitting"], "LATENTS_AT_ONCE", 3_000)
    monkeypatch.setattr(sys.modules["nppr.rare.splitting"], "NUMBERS_AT_ONCE", 500)
    assert run(source, ready(threshold, 3, 8), 3, runs, particles=100, images=images) == whole
    assert run(source, ready(threshold, 3), 3, runs, particles=100, images=images, seed=1) != whole


def test_out_of_memory_halves_and_goes_on() -> None:
    class TooLarge(Rows):
        allowed = 10_000

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > self.allowed:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
            return super().forward(x)

    source, runs = Gaussian(Budget.linf(0.5), 0.02), [SplittingRun(0)]
    expected = run(source, ready(0.03, 3), 3, runs)
    images = torch.full((2, 1, 3, 3), GREY)
    classifier = prepare(Classifier(TooLarge(0.03)), images, classes=2, micro_batch=64)
    classifier.fast.model.allowed = 5  # type: ignore[attr-defined]
    part = evaluate_part(images[:1], [0])
    with classifier.frozen() as models, torch.inference_mode():
        x, y = part.batch(np.arange(1))
        judge = MarginJudge(models.fast, make_latent(source, models.fast, x, y), 64)
        found = run_splitting(judge, part, runs, particles=500, limit=50_000, seed=0, device=CPU)
    assert found == expected
    assert judge.micro_batch == 4
    assert judge.calls == found[0].calls


def test_logits_that_are_no_numbers_are_named() -> None:
    classifier = replace(ready(0.0, 2), fast=Classifier(lambda x: x.flatten(1)[:, :2] * math.nan))
    with pytest.raises(ClassifierError, match="finite logits"):
        run(Gaussian(Budget.linf(0.1)), classifier, 2, [SplittingRun(0)])
