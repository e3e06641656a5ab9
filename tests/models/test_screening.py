"""Screened counts are those of the model, or the audit finds out, or the interval allows for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from nppr.core.budget import Budget
from nppr.core.losses import margin
from nppr.core.tally import Audit, Evaluate, Tally
from nppr.core.task import Task
from nppr.data import Data, from_arrays
from nppr.errors import ClassifierError
from nppr.measuring.blocks import FileStore
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, PreparedClassifier, frozen, prepare
from nppr.models.screening import (
    LEAST_SHARE,
    MOST_SHARE,
    WIDENING,
    Screen,
    ScreeningCopy,
    audit_share,
    calibrate,
)
from nppr.sources import PGD, Clean, Uniform
from nppr.statistics.estimates import (
    Allowance,
    estimate_per_input,
    estimate_prob_acc,
    estimate_probabilistic,
)
from nppr.statistics.intervals import clopper_pearson
from nppr.system.specs import BFLOAT16

CLASSES = 4
SIZE = 16
INPUTS, DRAWS = 400, 16
Run = Callable[[Tensor], Tensor]


@pytest.fixture
def data() -> Data:
    x = torch.rand(INPUTS, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return from_arrays(x, torch.arange(INPUTS) % CLASSES, shares=(0.0, 0.0))


@pytest.fixture
def classifier() -> Classifier:
    """Logits of about 10, so that an error of 0.1 is one in a hundred."""
    torch.manual_seed(0)
    last = nn.Linear(288, CLASSES)
    with torch.no_grad():
        last.weight.mul_(30)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), last)
    return Classifier(network, name="small")


def off_by(classifier: Classifier, error: float) -> Run:
    """The model with an error of this standard deviation, which depends on the image."""

    def run(x: Tensor) -> Tensor:
        seeds = (x.double().sum((1, 2, 3)) * 1e6).long().tolist()
        errors = [
            torch.randn(CLASSES, generator=torch.Generator().manual_seed(seed)) for seed in seeds
        ]
        logits: Tensor = classifier.model(x)
        return logits + error * torch.stack(errors)

    return run


def far_off_for(classifier: Classifier, share: float) -> Run:
    """A copy that gives a clear and wrong answer for about this share of the images, else the truth."""

    def run(x: Tensor) -> Tensor:
        logits: Tensor = classifier.model(x)
        wrong = (x.double().sum((1, 2, 3)) * 1e6).long() % 1000 < 1000 * share
        return torch.where(wrong[:, None], 100 * logits.roll(1, 1), logits)

    return run


def screened(
    classifier: Classifier, data: Data, run: Run, band: float | None = None
) -> PreparedClassifier:
    """Ready to measure, with a copy that takes clear decisions."""
    ready = prepare(classifier, probe(data.evaluate), classes=CLASSES, micro_batch=SIZE)
    copy = (
        calibrate(run, ready.fast, probe(data.evaluate))
        if band is None
        else ScreeningCopy(run, band, unclear=0.0)
    )
    return replace(ready, screening=copy)


def tally_of(ready: PreparedClassifier, data: Data, **more: object) -> Tally[Evaluate]:
    everything = np.ones(INPUTS, bool)
    return measure(
        Uniform(Budget.linf(0.1)),
        ready,
        data.evaluate,
        draws=DRAWS,
        clean_correct=everything,
        **more,  # type: ignore[arg-type]
    )


def test_counts_are_those_of_the_model(classifier: Classifier, data: Data) -> None:
    ready = screened(classifier, data, off_by(classifier, 0.1))
    assert ready.engine == BFLOAT16
    exact, found, alone = (
        tally_of(each, data)
        for each in (
            replace(ready, screening=None),
            ready,
            screened(classifier, data, off_by(classifier, 3.0), band=0.0),
        )
    )
    assert np.array_equal(found.correct, exact.correct)
    assert found.calls == exact.calls
    assert found.audit is not None
    assert not found.audit.discarded
    assert found.audit.audited / found.audit.alone == pytest.approx(
        audit_share(INPUTS, DRAWS), abs=0.03
    )
    assert alone.audit is not None
    assert alone.audit.discarded, "without a band the copy is wrong where it is close"


@pytest.mark.parametrize("micro_batch", [8, 24])
def test_one_contradiction_discards_the_counts(
    classifier: Classifier, data: Data, micro_batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    ready = screened(classifier, data, far_off_for(classifier, 0.01), band=0.5)
    ready = replace(ready, micro_batch=micro_batch)
    found, exact = tally_of(ready, data), tally_of(replace(ready, screening=None), data)
    assert found.audit is not None
    assert found.audit.discarded
    assert found.is_exact
    assert np.array_equal(found.correct, exact.correct)
    assert found.calls == exact.calls
    assert "counting again" in caplog.text
    rows = estimate_probabilistic(found, 0.95)
    plain = estimate_probabilistic(exact, 1 - 0.45 * 0.05)
    assert rows
    assert [(row.low, row.high) for row in rows] == [(row.low, row.high) for row in plain]


def test_a_resumed_measurement_stays_exact_after_a_contradiction(
    classifier: Classifier, data: Data, tmp_path: object
) -> None:
    store = FileStore(tmp_path / "blocks.safetensors", "same")  # type: ignore[operator]
    wrong = screened(classifier, data, far_off_for(classifier, 0.01), band=0.5)
    first = tally_of(wrong, data, store=store)
    used: list[int] = []

    def counting(x: Tensor) -> Tensor:
        used.append(len(x))
        return off_by(classifier, 0.0)(x)

    kept = store.load(INPUTS)
    assert kept is not None
    kept.finished[:32] = 0
    kept.correct[:32] = 0
    kept.calls[:32] = 0
    store.save(kept, now=True)
    again = tally_of(screened(classifier, data, counting, band=0.5), data, store=store)
    assert not used
    assert np.array_equal(again.correct, first.correct)


def test_blocks_that_hold_a_contradiction_are_counted_again(
    classifier: Classifier, data: Data, tmp_path: object
) -> None:
    """The process was killed between the contradiction and the counts that replace the others."""
    store = FileStore(tmp_path / "blocks.safetensors", "same")  # type: ignore[operator]
    ready = screened(classifier, data, off_by(classifier, 0.1))
    tally_of(ready, data, store=store)
    kept = store.load(INPUTS)
    assert kept is not None
    kept.audit[5, 2] = 1
    kept.correct[5] = 0
    store.save(kept, now=True)
    found, exact = (
        tally_of(ready, data, store=store),
        tally_of(replace(ready, screening=None), data),
    )
    assert found.audit is not None
    assert found.audit.discarded
    assert np.array_equal(found.correct, exact.correct)


def test_the_audit_does_not_depend_on_batches(classifier: Classifier, data: Data) -> None:
    ready = screened(classifier, data, off_by(classifier, 0.1))
    first, other = (
        tally_of(replace(ready, micro_batch=micro_batch), data) for micro_batch in (8, 64)
    )
    assert first.audit == other.audit


def test_only_means_over_many_draws_are_screened(classifier: Classifier, data: Data) -> None:
    ready = screened(classifier, data, off_by(classifier, 0.1))
    everything = np.ones(INPUTS, bool)
    for source in (Clean(), PGD(Budget.linf(0.1), steps=2)):
        tally = measure(source, ready, data.evaluate, clean_correct=everything)
        assert tally.audit is None, source.name
    few = measure(
        Uniform(Budget.linf(0.1)), ready, data.evaluate, draws=2, clean_correct=everything
    )
    assert few.audit is None, "an audit of so few draws would repeat nearly all of them"


@given(st.integers(400, 10**6), st.integers(5, 1000))
def test_the_audit_is_large_enough(inputs: int, draws: int) -> None:
    share = audit_share(inputs, draws)
    assert LEAST_SHARE <= share <= MOST_SHARE
    assert 1 - (1 - share) ** draws >= 0.8 - 1e-9
    allowed = Allowance.of(Audit(share, 1, 1), 0.95, draws)
    assert allowed.of_mean(inputs) <= WIDENING * (1 + 1e-9)


def test_few_inputs_or_draws_are_measured_exactly() -> None:
    assert audit_share(100, 100) == audit_share(10**6, 1) == 0
    assert Allowance.of(Audit(0.1, 9, 1, discarded=True), 0.95, 16).of_mean(50) == 0
    assert Allowance.of(None, 0.95, 16) == Allowance(0.95)


@given(
    st.floats(0.02, 0.5),
    st.integers(1, 200),
    st.lists(st.floats(0.01, 1), min_size=2, max_size=6),
    st.floats(0.5, 0.999),
)
def test_more_wrong_decisions_are_noticed(
    share: float, draws: int, weights: list[float], confidence: float
) -> None:
    """Whatever the law of an input's wrong decisions: a rate at the limit escapes no more often."""
    law = np.array(weights) / sum(weights)
    wrong = np.linspace(0, draws, len(law))
    allowed = Allowance.of(Audit(share, 1, 1), confidence, draws)
    rate = float((law * wrong).sum()) / draws
    inputs = math.ceil(
        allowed.of_mean(1) / rate
    )  # the fewest for which the limit excludes this rate
    assert allowed.of_mean(inputs) <= rate * (1 + 1e-9)
    unnoticed = float((law * (1 - share) ** wrong).sum())
    assert unnoticed**inputs <= 0.1 * (1 - confidence) * (1 + 1e-6)


def test_intervals_allow_for_what_the_audit_may_have_missed() -> None:
    found = screened_tally(400, 64, share=0.05)
    exact = replace(found, audit=None)
    allowed = Allowance.of(found.audit, 0.95, 64)
    assert allowed.confidence == pytest.approx(1 - 0.45 * 0.05)
    inside, alone = (
        {row.method: row for row in estimate_probabilistic(each, sure)}
        for each, sure in ((found, 0.95), (exact, allowed.confidence))
    )
    for method, row in inside.items():
        margin = -math.log(0.005) / (400 * (1 - 0.95**64))
        if method == "hoeffding":
            margin = -math.log(0.005) / (0.05 * 400 * 64)
        assert row.confidence == 0.95
        assert row.value == alone[method].value
        assert row.low == pytest.approx(max(0, alone[method].low - margin)), method
        assert row.high == pytest.approx(min(1, alone[method].high + margin)), method
    for row, other in zip(
        estimate_prob_acc(found, 0.95), estimate_prob_acc(exact, allowed.confidence), strict=True
    ):
        assert row.high == pytest.approx(min(1, other.high - math.log(0.005) / (0.05 * 400)))
    low, high = estimate_per_input(found, 0.95)
    kept, most = clopper_pearson(found.correct, 64, allowed.confidence)
    assert np.allclose(low, np.maximum(kept + math.log(0.005) / (0.05 * 64), 0))
    assert np.allclose(high, np.minimum(most - math.log(0.005) / (0.05 * 64), 1))


def screened_tally(inputs: int, draws: int, share: float) -> Tally[Evaluate]:
    correct = np.random.default_rng(0).binomial(draws, 0.8, inputs)
    return Tally(
        Evaluate,
        np.arange(inputs),
        np.zeros(inputs, np.int64),
        np.ones(inputs, bool),
        correct,
        draws,
        0,
        1,
        audit=Audit(share, inputs * draws, 100),
    )


@pytest.mark.slow
@pytest.mark.parametrize("clustered", [False, True])
def test_a_screened_tally_misses_its_interval_no_more_often_than_stated(clustered: bool) -> None:
    """Wrong decisions near the limit, alone or all draws of an input: intervals still cover."""
    rng = np.random.default_rng(0)
    inputs, draws, truth, share, runs = 500, 64, 0.9, 0.05, 200
    rate = 0.8 * Allowance.of(Audit(share, 1, 1), 0.95, draws).of_mean(inputs)
    missed: dict[str, list[bool]] = {"betting": [], "empirical-bernstein": [], "hoeffding": []}
    for _ in range(runs):
        exact = rng.binomial(draws, truth, inputs)
        size = (inputs, 1) if clustered else (inputs, draws)
        wrong = np.broadcast_to(rng.random(size) < rate, (inputs, draws)).sum(1)
        seen = np.maximum(exact - wrong, 0)
        noticed = rng.random() > (1 - share) ** int(wrong.sum())
        tally = replace(
            screened_tally(inputs, draws, share),
            correct=exact if noticed else seen,
            audit=Audit(share, inputs * draws, 1, discarded=noticed),
        )
        for row in estimate_probabilistic(tally, 0.95):
            if row.method in missed:
                missed[row.method].append(not row.low <= truth <= row.high)
    assert {len(found) for found in missed.values()} == {runs}
    assert max(sum(found) for found in missed.values()) <= 0.05 * runs


def test_the_band_is_wider_than_the_errors_of_margins(classifier: Classifier, data: Data) -> None:
    copy = calibrate(off_by(classifier, 0.1), classifier, probe(data.evaluate))
    # A difference of two logits is off by 0.1 times the square root of 2.
    assert 6 * 0.1 * 2**0.5 < copy.band < 14 * 0.1 * 2**0.5
    assert 0 < copy.unclear < 1


def test_a_copy_with_outlying_errors_is_refused(classifier: Classifier, data: Data) -> None:
    fine, far = off_by(classifier, 0.01), off_by(classifier, 100.0)

    def run(x: Tensor) -> Tensor:
        few = x.mean((1, 2, 3)) > 0.54
        return torch.where(few[:, None], far(x), fine(x))

    with pytest.raises(ClassifierError, match="errors of about one size"):
        calibrate(run, classifier, probe(data.evaluate))


def test_logits_inside_the_band_are_those_of_the_model(classifier: Classifier, data: Data) -> None:
    x, y = data.evaluate.batch(np.arange(64))
    copy = ScreeningCopy(off_by(classifier, 0.1), band=1.0, unclear=0.0)
    coins = torch.ones(64)
    coins[:8] = 0.0
    with frozen(classifier) as model, torch.inference_mode():
        true = model.logits(x)
        found, audit = Screen(copy, model, 0.5).logits(x, y, coins, SIZE)
        raw = copy.logits(model, x, SIZE)
    inside = margin(raw, y).abs() <= 1.0
    clear, audited, contradicted = audit.unbind(1)
    assert torch.equal(clear, ~inside)
    assert torch.equal(audited, clear & (coins < 0.5))
    assert not contradicted.any()
    exact = inside | audited
    assert 0 < int(exact.sum()) < 64
    assert torch.equal(found[~exact], raw[~exact])
    assert torch.allclose(found[exact], true[exact], atol=1e-5)


def test_a_copy_that_fails_decides_nothing(classifier: Classifier, data: Data) -> None:
    def broken(x: Tensor) -> Tensor:
        raise RuntimeError(f"{len(x)} images are too many")

    ready = screened(classifier, data, broken, band=1.0)
    found, exact = tally_of(ready, data), tally_of(replace(ready, screening=None), data)
    assert np.array_equal(found.correct, exact.correct)
    assert found.audit is not None
    assert found.audit.alone == 0


def test_tasks_and_old_processors_have_no_screen(
    monkeypatch: pytest.MonkeyPatch, classifier: Classifier
) -> None:
    x = torch.rand(20, 3, 8, 8)
    task = Task(
        correct=lambda out, y: out.argmax(1) == y, score=None, meaning="right", classes=True
    )
    data = from_arrays(x, torch.arange(20) % CLASSES, shares=(0.0, 0.0), task=task)
    ask = partial(prepare, classes=CLASSES, micro_batch=SIZE, engine=BFLOAT16)
    with pytest.raises(
        ClassifierError, match="`engine` bfloat16 is for classifiers without a task"
    ):
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False
        )
        ask(classifier.for_data(data), x)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    with pytest.raises(ClassifierError, match="`engine` bfloat16 needs a processor that computes"):
        ask(classifier, x)
