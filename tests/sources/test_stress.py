"""Stress on classifiers whose losses are known, and its sums through blocks and interrupts."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from helpers import Interrupting, evaluate_part, half_classifier, two_class_data
from nppr.core.budget import Budget
from nppr.core.tally import Evaluate, Metric, Tally
from nppr.errors import SpecError
from nppr.measuring.blocks import FileStore
from nppr.measuring.measurement import measure
from nppr.models import Classifier, prepare
from nppr.sources import Clean, Stress, Uniform, parse_sources

BUDGET = Budget.linf(0.3)
DATA = two_class_data()


def found(stress: Stress, tally: Tally[Evaluate]) -> dict[float, list[float]]:
    assert tally.sums is not None
    return {q: values.tolist() for q, values in stress.values(tally.sums, tally.draws).items()}


def losing(loss: Tensor) -> Tensor:
    """Logits of two classes whose cross-entropy for class 0 is `loss`, `(B,) -> (B, 2)`."""
    other = torch.expm1(loss).log()
    return torch.stack([torch.zeros_like(other), other], 1)


@pytest.mark.parametrize("loss", [1e-3, 0.7, 20.0])
@pytest.mark.parametrize("draws", [1, 16, 33])
def test_of_a_constant_classifier_it_is_the_loss_for_every_q(loss: float, draws: int) -> None:
    part = evaluate_part(torch.rand(3, 1, 2, 2), [0] * 3)
    classifier = Classifier(lambda x: losing(torch.full((len(x),), loss)))
    stress = Stress(BUDGET)
    values = found(stress, measure(stress, classifier, part, classes=2, draws=draws))
    assert list(values) == [1, 10, 100, 1000]
    for each in values.values():
        assert each == pytest.approx([loss] * 3, rel=1e-4)


def two_losses(x: Tensor) -> Tensor:
    """A loss of 3 where the pixel is brighter than 0.6, else of 0.5."""
    return losing(torch.where(x.flatten(1)[:, 0] > 0.6, 3.0, 0.5))


@pytest.mark.parametrize("draws", [10, 32, 50])
def test_of_two_losses_it_is_their_power_mean(draws: int) -> None:
    """How many draws have which loss is that of `uniform`: a loss of 3 is a wrong answer."""
    part = evaluate_part(torch.linspace(0.35, 0.85, 5).view(-1, 1, 1, 1), [0] * 5)
    stress = Stress(BUDGET, q="1+2+7.5+1000")
    tally = measure(stress, Classifier(two_losses), part, classes=2, draws=draws)
    right = measure(Uniform(BUDGET), Classifier(two_losses), part, classes=2, draws=draws).correct
    assert 0 < right.sum() < 5 * draws
    share = right / draws
    for q, values in found(stress, tally).items():
        with np.errstate(divide="ignore"):
            logs = np.logaddexp(
                np.log(share) + q * math.log(0.5), np.log(1 - share) + q * math.log(3)
            )
        assert values == pytest.approx(np.exp(logs / q).tolist(), rel=1e-5)


losses = st.lists(st.floats(1e-12, 1e3), min_size=1, max_size=20)


def logits_of(values: list[float]) -> Tensor:
    """Logits `(1, S, 2)` in double precision with these losses for class 0."""
    wanted = torch.tensor(values, dtype=torch.float64)
    # log(exp(l) - 1) without overflow
    other = wanted + torch.log(-torch.expm1(-wanted))
    return torch.stack([torch.zeros_like(other), other], 1)[None]


@given(losses)
def test_power_means_rise_with_q_from_the_mean_to_the_largest(values: list[float]) -> None:
    stress = Stress(BUDGET, q="1+2+10+1000")
    sums = stress.observe(logits_of(values), torch.tensor([0])).numpy()
    means = [float(each[0]) for each in stress.values(sums, len(values)).values()]
    assert all(math.isfinite(mean) for mean in means)
    # A cross-entropy of 1e-12 keeps four digits in double precision.
    assert means[0] == pytest.approx(math.fsum(values) / len(values), rel=1e-3)
    for low, high in itertools.pairwise(means):
        assert low <= high * (1 + 1e-9)
    assert means[-1] <= max(values) * (1 + 1e-3)
    assert means[-1] >= max(values) * len(values) ** (-1 / 1000) * (1 - 1e-3)


def test_losses_far_apart_neither_overflow_nor_vanish() -> None:
    stress = Stress(BUDGET, q="1+1000+1000000")
    for values in ([1e-12] * 4, [1e3] * 4, [1e-12, 1e3]):
        sums = stress.observe(logits_of(values), torch.tensor([0])).numpy()
        assert np.isfinite(sums).all()
        for q, mean in stress.values(sums, len(values)).items():
            logs = [q * math.log(value) for value in values]
            top = max(logs)
            spread = math.fsum(math.exp(each - top) for each in logs) / len(values)
            expected = math.exp((top + math.log(spread)) / q)
            assert mean.item() == pytest.approx(expected, rel=1e-3)


def test_two_blocks_are_one_computation() -> None:
    """32 draws in two blocks, against all of them at once."""
    stress = Stress(BUDGET)
    classifier = Classifier(half_classifier())
    tally = measure(stress, classifier, DATA.evaluate, draws=32)
    seen: list[Tensor] = []

    class Watched(Uniform):
        def perturb(self, model, x, y, draws):  # type: ignore[no-untyped-def]
            delta = super().perturb(model, x, y, draws)
            seen.append(delta)
            return delta

    measure(Watched(BUDGET), classifier, DATA.evaluate, draws=32)
    delta = torch.cat(seen, 1)
    assert delta.shape[:2] == (len(DATA.evaluate), 32)
    x, y = DATA.evaluate.batch(np.arange(len(DATA.evaluate)))
    logits = classifier.forward((x[:, None] + delta).clamp(0, 1).flatten(0, 1)).double()
    each = torch.nn.functional.cross_entropy(logits, y.repeat_interleave(32), reduction="none")
    each = each.view(-1, 32).detach()
    for q, values in found(stress, tally).items():
        top = each.amax(1)
        expected = top * ((each / top[:, None]) ** q).mean(1) ** (1 / q)
        assert values == pytest.approx(expected.tolist(), rel=1e-5)


def test_its_draws_are_those_of_uniform() -> None:
    stress, uniform = (
        measure(source, Classifier(half_classifier()), DATA.evaluate, draws=40, seed=3)
        for source in (Stress(BUDGET), Uniform(BUDGET))
    )
    assert 0 < stress.correct.sum() < 40 * len(DATA.evaluate)
    assert np.array_equal(stress.correct, uniform.correct)
    assert stress.calls == uniform.calls
    assert uniform.sums is None


def run(model: Callable[[Tensor], Tensor], store: FileStore | None) -> Tally[Evaluate]:
    probe = torch.rand(4, 1, 4, 4)
    ready = prepare(Classifier(half_classifier()), probe, classes=2, micro_batch=16, speedups=())
    ready = replace(ready, fast=Classifier(model))
    clean = np.ones(len(DATA.evaluate), bool)
    return measure(Stress(BUDGET), ready, DATA.evaluate, draws=70, clean_correct=clean, store=store)


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 40, 100])
def test_sums_survive_an_interrupt(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["nppr.measuring.measurement"], "NUMBERS_AT_ONCE", 256)
    whole = run(half_classifier(), None)
    store = FileStore(tmp_path / "blocks")
    with pytest.raises(KeyboardInterrupt):
        run(Interrupting(at), store)
    kept = store.load(len(DATA.evaluate))
    assert kept is not None
    assert kept.finished.sum() == at - 1
    assert kept.sums.shape == ((len(DATA.evaluate), 4) if at > 1 else (0, 0))
    resumed = run(half_classifier(), store)
    assert whole.sums is not None
    assert resumed.sums is not None
    assert np.allclose(resumed.sums, whole.sums, rtol=1e-12, atol=0)
    assert np.array_equal(resumed.correct, whole.correct)
    again = run(Interrupting(1), store)  # finished: the classifier is not asked
    assert again.sums is not None
    assert np.array_equal(again.sums, resumed.sums)


def test_a_report_has_the_loss_and_its_ratio_for_every_q() -> None:
    classifier = Classifier(half_classifier())
    stress = Stress(BUDGET, q="1+25.5")
    tally = measure(stress, classifier, DATA.evaluate, draws=20)
    clean = measure(Clean(), classifier, DATA.evaluate)
    rows = stress.read(tally, clean, 0.9, 0)
    assert [(row.order, row.metric) for row in rows] == [
        (1, Metric.STRESS),
        (1, Metric.NORMALISED_STRESS),
        (25.5, Metric.STRESS),
        (25.5, Metric.NORMALISED_STRESS),
    ]
    x, y = DATA.evaluate.batch(np.arange(len(DATA.evaluate)))
    standard = torch.nn.functional.cross_entropy(classifier.forward(x).double(), y).item()
    values = found(stress, tally)
    for row, ratio in zip(rows[::2], rows[1::2], strict=True):
        assert row.order is not None
        assert row.value == pytest.approx(np.mean(values[row.order]))
        assert ratio.value == pytest.approx(row.value / standard, rel=1e-6)
        assert (row.inputs, row.draws) == (len(DATA.evaluate), 20)
        for each in (row, ratio):
            assert each.low < each.value < each.high
            assert each.confidence == 0.9


def test_wrong_inputs_count_too() -> None:
    """Stress is a mean over all inputs, not over the clean-correct ones."""
    part = evaluate_part(torch.tensor([0.1, 0.9]).view(2, 1, 1, 1), [0, 0])
    classifier = Classifier(two_losses)
    stress = Stress(Budget.linf(0.05), q="1")
    tally = measure(stress, classifier, part, classes=2, draws=4)
    clean = measure(Clean(), classifier, part, classes=2)
    assert tally.clean_correct.tolist() == [True, False]
    row, ratio = stress.read(tally, clean, 0.95, 0)
    assert row.value == pytest.approx((0.5 + 3) / 2, rel=1e-5)
    assert ratio.value == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("q", ["", "0.5", "one", "1+", "+1", "1,10", "-2", "nan", "inf", "2e6"])
def test_bad_orders_are_named(q: str) -> None:
    with pytest.raises(SpecError, match="`q` of stress must hold numbers from 1 to"):
        Stress(BUDGET, q)


@pytest.mark.parametrize("q", ["1+1", "10+1+10.0"])
def test_an_order_is_named_once(q: str) -> None:
    with pytest.raises(SpecError, match="every order once"):
        Stress(BUDGET, q)


def test_orders_are_written_with_plus() -> None:
    (stress,) = parse_sources("stress:q=1+50", BUDGET)
    assert stress == Stress(BUDGET, "1+50")
    assert stress.name == "stress:q=1+50"
    assert Stress(BUDGET).name == "stress"
    assert Stress(BUDGET, "1+50").orders == (1.0, 50.0)
