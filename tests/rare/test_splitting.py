from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from torch import Tensor, nn

from helpers import evaluate_part
from nppr.budget import Budget
from nppr.classifiers import Classifier, Prepared, prepare
from nppr.errors import ClassifierError
from nppr.rare import Judge, Outcome, Run, Scheme, Status, latent_of, split
from nppr.sources import Gaussian, Laplace, Uniform
from nppr.types import PerturbationSource

GREY = 0.5
CPU = torch.device("cpu")
Source = PerturbationSource


class Rows(nn.Module):
    """Fails where `sum(x - 1/2) / sqrt(D) >= threshold`; each row is summed by itself, in double."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.tensor(threshold, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        pixels = (x.double() - GREY).flatten(1).unbind(1)
        total = torch.stack(pixels).cumsum(0)[-1] / math.sqrt(len(pixels))
        return torch.stack([self.threshold - total, torch.zeros_like(total)], 1)


def ready(threshold: float, side: int, micro_batch: int = 512) -> Prepared:
    images = torch.full((2, 1, side, side), GREY)
    return prepare(Classifier(Rows(threshold)), images, classes=2, micro_batch=micro_batch)


def run(
    source: Source,
    classifier: Prepared,
    side: int,
    runs: list[Run],
    *,
    particles: int = 500,
    limit: int = 50_000,
    seed: int = 0,
    images: Tensor | None = None,
) -> list[Outcome]:
    count = 1 + max(one.position for one in runs)
    images = torch.full((count, 1, side, side), GREY) if images is None else images
    part = evaluate_part(images, [0] * count)
    with classifier.frozen() as models, torch.inference_mode():
        x, y = part.batch(np.arange(1))
        judge = Judge(models.fast, latent_of(source, models.fast, x, y), classifier.micro_batch)
        outcomes = split(judge, part, runs, Scheme(particles, limit), seed=seed, device=CPU)
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
    runs = [Run(position) for position in range(12)]
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
    assert all(abs(one.levels - expected) <= 1 for one in outcomes)
    assert all(one.calls == 500 * one.levels for one in outcomes)


def test_an_input_that_always_fails() -> None:
    (outcome,) = run(Gaussian(Budget.linf(0.1)), ready(-1.0, 2), 2, [Run(0)])
    assert outcome == Outcome(0.0, 0.0, 500, 1, Status.FOUND)


def test_an_input_that_never_fails() -> None:
    """Four pixels of at most 1/10 each cannot reach half a sum of 1/4."""
    (outcome,) = run(Uniform(Budget.linf(0.1)), ready(0.25, 2), 2, [Run(0)])
    assert outcome.status is Status.BELOW
    assert math.log(1e-12) - math.log(5.1) < outcome.log_p < math.log(1e-12)
    assert outcome.calls == 500 * 18


def test_a_classifier_of_one_answer_ends_out_of_calls() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([1.0, 0.0]).expand(len(x), 2) + 0 * x.flatten(1)[:, :1]

    images = torch.full((2, 1, 2, 2), GREY)
    classifier = prepare(Classifier(Constant()), images, classes=2, micro_batch=64)
    (outcome,) = run(Gaussian(Budget.linf(0.1)), classifier, 2, [Run(0)], limit=5_200)
    assert outcome == Outcome(-math.log(5_000), 0.0, 5_000, 0, Status.OUT_OF_CALLS)


def test_calls_end_a_run() -> None:
    classifier = ready(0.01 * float(norm.isf(1e-8)), 3)
    source = Gaussian(Budget.linf(0.5), 0.02)
    (outcome,) = run(source, classifier, 3, [Run(0)], limit=2_700)
    assert outcome.status is Status.OUT_OF_CALLS
    assert outcome.calls == 2_500
    # A little less: states that chains repeat are tied at the level.
    assert outcome.log_p == pytest.approx(5 * math.log(0.2), abs=0.05)


def test_rarer_failures_are_less_probable() -> None:
    """The same random numbers meet ever higher thresholds: levels are passed in the same order."""
    source = Gaussian(Budget.linf(0.5), 0.02)
    found = [
        run(source, ready(0.01 * float(norm.isf(p)), 3), 3, [Run(0)])[0]
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
    runs = [Run(position, replicate) for position in range(8) for replicate in range(2)]
    whole = run(source, ready(threshold, 3), 3, runs, particles=100, images=images)
    assert len({one.log_p for one in whole}) > 10
    assert len({one.levels for one in whole}) > 3
    assert run(source, ready(threshold, 3, 7), 3, runs, particles=100, images=images) == whole
    alone = [
        run(source, ready(threshold, 3), 3, [one], particles=100, images=images[: one.position + 1])
        for one in runs[::5]
    ]
    assert [outcome for (outcome,) in alone] == whole[::5]
    # Little memory: few runs at once, and few images.
    monkeypatch.setattr(sys.modules["nppr.rare.splitting"], "NUMBERS_KEPT", 3_000)
    monkeypatch.setattr(sys.modules["nppr.rare.judge"], "NUMBERS_AT_ONCE", 500)
    assert run(source, ready(threshold, 3, 8), 3, runs, particles=100, images=images) == whole
    assert run(source, ready(threshold, 3), 3, runs, particles=100, images=images, seed=1) != whole


def test_out_of_memory_halves_and_goes_on() -> None:
    class TooLarge(Rows):
        allowed = 10_000

        def forward(self, x: Tensor) -> Tensor:
            if len(x) > self.allowed:
                raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
            return super().forward(x)

    source, runs = Gaussian(Budget.linf(0.5), 0.02), [Run(0)]
    expected = run(source, ready(0.03, 3), 3, runs)
    images = torch.full((2, 1, 3, 3), GREY)
    classifier = prepare(Classifier(TooLarge(0.03)), images, classes=2, micro_batch=64)
    classifier.fast.model.allowed = 5  # type: ignore[attr-defined]
    part = evaluate_part(images[:1], [0])
    with classifier.frozen() as models, torch.inference_mode():
        x, y = part.batch(np.arange(1))
        judge = Judge(models.fast, latent_of(source, models.fast, x, y), 64)
        found = split(judge, part, runs, Scheme(500, 50_000), seed=0, device=CPU)
    assert found == expected
    assert judge.micro_batch == 4
    assert judge.calls == found[0].calls


def test_logits_that_are_no_numbers_are_named() -> None:
    classifier = replace(ready(0.0, 2), fast=Classifier(lambda x: x.flatten(1)[:, :2] * math.nan))
    with pytest.raises(ClassifierError, match="finite logits"):
        run(Gaussian(Budget.linf(0.1)), classifier, 2, [Run(0)])
