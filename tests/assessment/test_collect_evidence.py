from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from helpers import Broken
from nppr.budget import Budget
from nppr.random_draws import DrawBlock
from nppr.noise import Dependency
from nppr.report.evidence import Draws, Evidence, Worst
from nppr.sources import PGD, AutoAttack, Brightness, CustomAttack, Gaussian, Stress, Uniform
from nppr.tally import Metric


def same(one: Evidence, other: Evidence, within: float = 0.0) -> None:
    for before, after in zip((*one.worst, *one.draws), (*other.worst, *other.draws), strict=True):
        assert isinstance(before, Worst | Draws)
        for field in fields(before):
            first, second = getattr(before, field.name), getattr(after, field.name)
            if field.name == "source":
                assert first == second
            else:
                torch.testing.assert_close(first, second, rtol=within, atol=within)


@pytest.fixture(scope="module")
def evidence(case: Any) -> Evidence:
    sources = [Gaussian(case.budget), Uniform(case.budget), PGD(case.budget)]
    fitted = [case.learned(Dependency.JOINT), case.learned(Dependency.JOINT, 0.5)]
    found: Evidence = case.collected(sources, fitted)
    return found


def test_the_same_run_shows_the_same_whatever_the_micro_batch(
    case: Any, evidence: Evidence
) -> None:
    sources = [Gaussian(case.budget), Uniform(case.budget), PGD(case.budget)]
    fitted = [case.learned(Dependency.JOINT), case.learned(Dependency.JOINT, 0.5)]
    tallies = case.tallies([*sources, *(each.source for each in fitted)])
    same(evidence, case.collected(sources, fitted, tallies))
    same(evidence, case.collected(sources, fitted, tallies, micro_batch=5), within=2e-3)


def test_learned_noise_the_strongest_attack_and_the_worst_noise_are_shown(
    case: Any, evidence: Evidence
) -> None:
    tallies = case.tallies([Gaussian(case.budget), Uniform(case.budget)])
    worst = min(tallies, key=lambda name: float(tallies[name].headline_rates.mean()))
    assert [each.source for each in evidence.worst] == ["nppr", "pgd", worst]
    assert [each.source for each in evidence.draws] == ["nppr", "nppr:floor=0.5"]


@pytest.mark.parametrize("winner", ["gaussian", "uniform"])
def test_the_noise_that_won_is_shown(case: Any, winner: str) -> None:
    sources = [Gaussian(case.budget), Uniform(case.budget)]
    made = case.learned(Dependency.INDEPENDENT, winner=winner)
    found = case.collected(sources, [made])
    assert [each.source for each in found.worst] == ["nppr", winner]


def test_the_worst_are_the_worst(case: Any, evidence: Evidence) -> None:
    shown = evidence.worst[2]
    tally = case.tallies([Gaussian(case.budget), Uniform(case.budget)])[shown.source]
    right = np.flatnonzero(tally.clean_correct)
    order = sorted(right.tolist(), key=lambda place: (tally.rates[place], place))[:12]
    part = case.data.evaluate
    assert shown.indices.tolist() == part.indices[order].tolist()
    assert shown.labels.tolist() == part.labels[order].tolist()
    np.testing.assert_allclose(shown.rates.numpy(), tally.rates[order], rtol=1e-6)


@pytest.mark.parametrize("number", range(3))
def test_images_are_what_the_classifier_met(case: Any, evidence: Evidence, number: int) -> None:
    shown = evidence.worst[number]
    x = case.data.evaluate.images.load(shown.indices.numpy())
    assert bool(((shown.clean / 255 - x).abs() <= 0.5 / 255 + 1e-6).all())
    delta = shown.delta.float() * case.budget.radius
    assert bool((delta.abs() <= case.budget.radius * 1.001).all())
    moved = (x + delta).clamp(0, 1)
    assert bool(((shown.perturbed / 255 - moved).abs() <= 1 / 255).all())
    with case.classifier.frozen() as models, torch.no_grad():
        logits = models.reference.logits(shown.perturbed / 255)
    largest, answers = logits.topk(2)
    clear = largest[:, 0] - largest[:, 1] > 0.02
    assert int(clear.sum()) > 3
    assert bool((answers[:, 0] == shown.taken_for)[clear].all())


def test_a_draw_that_fails_is_shown_where_one_is_found(case: Any, evidence: Evidence) -> None:
    doubtful = 0
    for shown in evidence.worst:
        wrong = shown.taken_for != shown.labels
        assert bool(wrong[shown.rates == 0].all())
        if shown.source != "pgd":
            assert not bool(wrong[shown.rates == 1].any())
            # More failures than there are draws behind the first block: some are in it.
            failures = (1 - shown.rates) * case.draws
            assert bool(wrong[failures > case.draws - 16 + 0.5].all())
            doubtful += int(((shown.rates > 0) & (failures > case.draws - 16 + 0.5)).sum())
    assert doubtful > 5


@pytest.mark.parametrize("dependency", list(Dependency))
def test_draws_are_those_of_the_measurement(case: Any, dependency: Dependency) -> None:
    fitted = case.learned(dependency, 0.25)
    [draws] = case.collected([], [fitted]).draws
    clean = case.clean()
    right = set(case.data.evaluate.indices[clean.correct == 1].tolist())
    assert len(set(draws.indices.tolist())) == len(draws.indices) == len(right)
    assert set(draws.indices.tolist()) == right
    assert draws.many.shape == (len(right), 8, 1, 8, 8)
    assert draws.few.shape == (3, 128, 1, 8, 8)
    assert len(set(draws.labels[:3].tolist())) == 3
    torch.testing.assert_close(draws.few[:, :8], draws.many[:3], atol=2e-3, rtol=0)
    block = DrawBlock(
        case.seed, "evaluate", tuple(draws.indices.tolist()), 0, 8, case.classifier.device
    )
    x = case.data.evaluate.images.load(draws.indices.numpy())
    with case.classifier.frozen() as models:
        drawn = fitted.source.perturb(models.fast, x, draws.labels, block)
    torch.testing.assert_close(drawn / case.budget.radius, draws.many.float(), atol=2e-3, rtol=0)
    assert float(draws.many.abs().max()) <= 1
    assert float(draws.few.float().std(1).min()) > 0.01
    torch.testing.assert_close(draws.weights.sum(1), torch.ones(len(right)))
    varies = float((draws.weights.amax(0) - draws.weights.amin(0)).max()) > 1e-3
    assert varies == (dependency is not Dependency.INDEPENDENT)


def test_fits_of_other_seeds_are_left_out(case: Any) -> None:
    fitted = [
        case.learned(Dependency.LABEL),
        case.learned(Dependency.LABEL, name="nppr:fit-seed=1"),
    ]
    assert [each.source for each in case.collected([], fitted).draws] == ["nppr"]


def test_expensive_and_failing_sources_are_left_out(case: Any) -> None:
    attack, noise = AutoAttack(case.budget), Uniform(case.budget)
    broken = Broken(case.budget, 0.0, "broken")
    broken.metric = Metric.AR
    tallies = case.tallies([noise])
    tallies |= {attack.name: tallies["uniform"], "broken": tallies["uniform"]}
    tallies["stress"] = tallies["uniform"]
    sources = [attack, broken, Stress(case.budget), noise]
    found = case.collected(sources, [], tallies)
    assert [each.source for each in found.worst] == ["uniform"]


def test_attacks_of_the_user_are_shown(case: Any) -> None:
    def brighter(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert len(y) == len(x) == len(model(x))
        return (x + 0.2).clamp(0, 1)

    attack = CustomAttack(case.budget, brighter)
    [shown] = case.collected([attack], []).worst
    assert shown.source == "brighter"
    assert float(shown.delta.max()) <= 1


def test_without_anything_else_the_worst_corruption_is_shown(case: Any) -> None:
    [shown] = case.collected([Brightness()], []).worst
    assert shown.source == "brightness"
    assert bool(torch.isfinite(shown.delta).all())


def test_large_images_are_kept_small(make: Callable[..., Any]) -> None:
    case = make(inputs=8, shape=(3, 100, 120), classes=2)
    evidence = case.collected([Uniform(case.budget)], [case.learned(Dependency.LABEL)])
    assert evidence.worst[0].clean.shape[1:] == (3, 80, 96)
    assert evidence.draws[0].many.shape[2:] == (3, 27, 32)
    assert evidence.draws[0].few.shape[:2] == (2, 128)


@pytest.mark.parametrize("budget", [Budget.linf(0.1), Budget.l2(0.5)], ids=str)
def test_one_input_and_two_classes(make: Callable[..., Any], budget: Budget) -> None:
    case = make(inputs=1, classes=2, budget=budget)
    evidence = case.collected([Uniform(budget)], [case.learned(Dependency.JOINT)])
    assert evidence.worst[0].clean.shape == (1, 1, 8, 8)
    assert evidence.draws[0].many.shape == (1, 8, 1, 8, 8)
    sizes = budget.size(evidence.draws[0].few.float() * budget.radius)
    assert bool((sizes <= 1.001 * budget.radius).all())


def test_nothing_right_nothing_shown(make: Callable[..., Any]) -> None:
    case = make(inputs=12)
    labels = case.data.evaluate.labels
    with case.classifier.frozen() as models, torch.no_grad():
        x, _ = case.data.evaluate.batch(np.arange(12))
        labels[:] = (models.reference.logits(x).argmax(1).numpy() + 1) % 3
    found = case.collected([], [case.learned(Dependency.LABEL)])
    assert found.worst == ()
    assert found.draws == ()
