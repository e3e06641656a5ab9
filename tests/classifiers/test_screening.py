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

from nppr.blocks import FileStore
from nppr.budget import Budget
from nppr.classifiers import Classifier, Prepared, frozen, prepare
from nppr.classifiers.screening import (
    LEAST_SHARE,
    MOST_SHARE,
    WIDENING,
    CoarseCopy,
    Screen,
    audit_share,
    calibrate,
)
from nppr.data import Data, from_arrays
from nppr.errors import ClassifierError
from nppr.losses import margin
from nppr.measurement import measure, probe
from nppr.sources import PGD, Clean, Uniform
from nppr.specs import BFLOAT16
from nppr.statistics.estimates import per_input, probabilistic, probably_accurate
from nppr.statistics.intervals import clopper_pearson
from nppr.tally import AUDIT_ERROR, Audit, Evaluate, Tally
from nppr.task import Task

CLASSES = 4
SIZE = 16
Run = Callable[[Tensor], Tensor]


@pytest.fixture
def data() -> Data:
    x = torch.rand(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return from_arrays(x, torch.arange(64) % CLASSES, shares=(0.0, 0.0))


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


def screened(classifier: Classifier, data: Data, run: Run, band: float | None = None) -> Prepared:
    """Ready to measure, with a coarse copy that takes clear decisions."""
    ready = prepare(classifier, probe(data.evaluate), classes=CLASSES, micro_batch=SIZE)
    coarse = (
        calibrate(run, ready.fast, probe(data.evaluate))
        if band is None
        else CoarseCopy(run, band, unclear=0.0)
    )
    return replace(ready, coarse=coarse)


def tally_of(ready: Prepared, data: Data, **more: object) -> Tally[Evaluate]:
    everything = np.ones(64, bool)
    return measure(
        Uniform(Budget.linf(0.1)),
        ready,
        data.evaluate,
        draws=64,
        clean_correct=everything,
        **more,  # type: ignore[arg-type]
    )


def test_counts_are_those_of_the_model(classifier: Classifier, data: Data) -> None:
    ready = screened(classifier, data, off_by(classifier, 0.1))
    assert ready.engine == BFLOAT16
    exact, found, alone = (
        tally_of(each, data)
        for each in (
            replace(ready, coarse=None),
            ready,
            screened(classifier, data, off_by(classifier, 3.0), band=0.0),
        )
    )
    assert np.array_equal(found.correct, exact.correct)
    assert found.calls == exact.calls
    assert found.audit is not None
    assert not found.audit.discarded
    assert found.audit.audited / found.audit.alone == pytest.approx(audit_share(64 * 64), abs=0.03)
    assert alone.audit is not None
    assert alone.audit.discarded, "without a band the copy is wrong where it is close"


@pytest.mark.parametrize("micro_batch", [8, 24])
def test_one_contradiction_discards_the_counts(
    classifier: Classifier, data: Data, micro_batch: int, caplog: pytest.LogCaptureFixture
) -> None:
    ready = screened(classifier, data, far_off_for(classifier, 0.01), band=0.5)
    ready = replace(ready, micro_batch=micro_batch)
    found, exact = tally_of(ready, data), tally_of(replace(ready, coarse=None), data)
    assert found.audit is not None
    assert found.audit.discarded
    assert found.is_exact
    assert np.array_equal(found.correct, exact.correct)
    assert found.calls == exact.calls
    assert "counting again" in caplog.text
    assert probabilistic(found, 0.95) == probabilistic(exact, 0.95)


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

    kept = store.load(64)
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
    kept = store.load(64)
    assert kept is not None
    kept.audit[5, 2] = 1
    kept.correct[5] = 0
    store.save(kept, now=True)
    found, exact = (
        tally_of(ready, data, store=store),
        tally_of(replace(ready, coarse=None), data),
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
    everything = np.ones(64, bool)
    for source in (Clean(), PGD(Budget.linf(0.1), steps=2)):
        tally = measure(source, ready, data.evaluate, clean_correct=everything)
        assert tally.audit is None, source.name
    few = measure(
        Uniform(Budget.linf(0.1)), ready, data.evaluate, draws=2, clean_correct=everything
    )
    assert few.audit is None, "an audit of so few draws would repeat nearly all of them"


@given(st.integers(1_600, 10**7))
def test_the_audit_is_large_enough(decisions: int) -> None:
    share = audit_share(decisions)
    assert LEAST_SHARE <= share <= MOST_SHARE
    unnoticed = Audit(share, decisions, 0).most_wrong(AUDIT_ERROR)
    assert unnoticed <= WIDENING * decisions * (1 + 1e-9)
    assert audit_share(1_500) == 0


@given(st.floats(0.02, 0.5), st.floats(1e-4, 0.2))
def test_more_wrong_decisions_are_noticed(share: float, error: float) -> None:
    """One more than the limit escapes the audit with a probability below the error."""
    most = Audit(share, 10**9, 10**7).most_wrong(error)
    assert (1 - share) ** (math.floor(most) + 1) <= error * (1 + 1e-9)
    assert Audit(share, 3, 1).most_wrong(error) <= 3
    assert Audit(share, 10**9, 10**7, discarded=True).most_wrong(error) == 0


def test_intervals_allow_for_what_the_audit_may_have_missed(
    classifier: Classifier, data: Data
) -> None:
    found = tally_of(screened(classifier, data, off_by(classifier, 0.1)), data)
    assert found.audit is not None
    exact = replace(found, audit=None)
    wrong = found.audit.most_wrong(0.005)
    inside, alone = (
        {row.method: row for row in probabilistic(each, sure)}
        for each, sure in ((found, 0.95), (exact, 0.955))
    )
    for method, row in inside.items():
        assert row.confidence == 0.95
        assert row.value == alone[method].value
        assert row.low == pytest.approx(max(0, alone[method].low - wrong / 64**2)), method
        assert row.high == pytest.approx(min(1, alone[method].high + wrong / 64**2)), method
    for row, other in zip(
        probably_accurate(found, 0.95), probably_accurate(exact, 0.955), strict=True
    ):
        assert row.high == pytest.approx(min(1, other.high + wrong / 64))
    low, high = per_input(found, 0.95)
    fewer = np.maximum(found.correct - math.ceil(wrong), 0)  # all of them may be of one input
    assert np.allclose(low, clopper_pearson(fewer, 64, 0.955)[0])
    assert (high == 1)[found.correct >= 64 - wrong].all()


def test_a_screened_tally_misses_its_interval_no_more_often_than_stated() -> None:
    """Wrong decisions at the limit, placed at random: intervals of screened counts still cover."""
    rng = np.random.default_rng(0)
    inputs, draws, truth = 100, 64, 0.9
    share = audit_share(inputs * draws)
    limit = Audit(share, inputs * draws, 0).most_wrong(AUDIT_ERROR)
    missed = runs = 0
    for _ in range(300):
        correct = rng.binomial(draws, truth, inputs)
        wrong = int(limit)
        noticed = rng.random() < 1 - (1 - share) ** wrong
        if not noticed:
            correct = np.maximum(correct - rng.multinomial(wrong, np.full(inputs, 1 / inputs)), 0)
        tally = Tally(
            Evaluate,
            np.arange(inputs),
            np.zeros(inputs, np.int64),
            np.ones(inputs, bool),
            correct,
            draws,
            0,
            1,
            audit=Audit(share, inputs * draws, 0, discarded=noticed),
        )
        row = next(row for row in probabilistic(tally, 0.95) if row.method == "hoeffding")
        missed += not row.low <= truth <= row.high
        runs += 1
    assert missed <= 0.05 * runs


def test_the_band_is_wider_than_the_errors_of_margins(classifier: Classifier, data: Data) -> None:
    coarse = calibrate(off_by(classifier, 0.1), classifier, probe(data.evaluate))
    # A difference of two logits is off by 0.1 times the square root of 2.
    assert 6 * 0.1 * 2**0.5 < coarse.band < 14 * 0.1 * 2**0.5
    assert 0 < coarse.unclear < 1


def test_a_copy_with_outlying_errors_is_refused(classifier: Classifier, data: Data) -> None:
    fine, far = off_by(classifier, 0.01), off_by(classifier, 100.0)

    def run(x: Tensor) -> Tensor:
        few = x.mean((1, 2, 3)) > 0.54
        return torch.where(few[:, None], far(x), fine(x))

    with pytest.raises(ClassifierError, match="errors of about one size"):
        calibrate(run, classifier, probe(data.evaluate))


def test_logits_inside_the_band_are_those_of_the_model(classifier: Classifier, data: Data) -> None:
    x, y = data.evaluate.batch(np.arange(64))
    coarse = CoarseCopy(off_by(classifier, 0.1), band=1.0, unclear=0.0)
    coins = torch.ones(64)
    coins[:8] = 0.0
    with frozen(classifier) as model, torch.inference_mode():
        true = model.logits(x)
        found, audit = Screen(coarse, model, 0.5).logits(x, y, coins, SIZE)
        raw = coarse.logits(model, x, SIZE)
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
    found, exact = tally_of(ready, data), tally_of(replace(ready, coarse=None), data)
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
