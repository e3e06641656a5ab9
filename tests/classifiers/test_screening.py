"""A coarse engine never decides what it cannot know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nppr.budget import Budget
from nppr.classifiers import (
    Classifier,
    Prepared,
    forward_engines,
    frozen,
    prepare,
    prepare_classifier,
)
from nppr.classifiers.classifier import Engine
from nppr.classifiers.screening import ENOUGH, SAFETY, CoarseEngine, Screen, calibrate
from nppr.data import Data, from_arrays
from nppr.errors import ClassifierError
from nppr.losses import margin
from nppr.measurement import measure, probe
from nppr.sources import Clean, Uniform
from nppr.specs import BFLOAT16, EAGER
from nppr.task import Task

CLASSES = 4
SIZE = 16


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


def off_by(classifier: Classifier, error: float) -> Engine:
    """The model with an error of this standard deviation, which depends on the image."""
    model = classifier.model

    def run(x: Tensor) -> Tensor:
        seeds = (x.double().sum((1, 2, 3)) * 1e6).long().tolist()
        errors = [
            torch.randn(CLASSES, generator=torch.Generator().manual_seed(seed)) for seed in seeds
        ]
        logits: Tensor = model(x)
        return logits + error * torch.stack(errors)

    return Engine("coarse", run)


def screened(classifier: Classifier, data: Data, engine: Engine, cost: float = 0.5) -> Prepared:
    """Ready to measure, with an engine that takes clear decisions."""
    ready = prepare(
        classifier, probe(data.evaluate), classes=CLASSES, micro_batch=SIZE, engine=EAGER
    )
    coarse = calibrate(engine, ready.fast, probe(data.evaluate), SIZE)
    return replace(ready, coarse=replace(coarse, cost=cost))


def test_counts_are_those_of_the_model(classifier: Classifier, data: Data) -> None:
    engine = off_by(classifier, 0.1)
    ready = screened(classifier, data, engine)
    assert ready.engine == "coarse"
    source = Uniform(Budget.linf(0.1))
    tallies = {
        name: measure(source, each, data.evaluate, draws=64)
        for name, each in {
            "model": replace(ready, coarse=None),
            "screened": ready,
            "engine alone": replace(ready, coarse=None, fast=ready.fast.with_engine(engine)),
        }.items()
    }
    assert np.array_equal(tallies["screened"].correct, tallies["model"].correct)
    assert tallies["screened"].calls == tallies["model"].calls
    assert not np.array_equal(tallies["engine alone"].correct, tallies["model"].correct)


def test_the_band_is_wider_than_the_errors_of_margins(classifier: Classifier, data: Data) -> None:
    coarse = calibrate(off_by(classifier, 0.1), classifier, probe(data.evaluate), SIZE)
    # A difference of two logits is off by 0.1 times the square root of 2.
    assert 6 * 0.1 * 2**0.5 < coarse.band < 14 * 0.1 * 2**0.5
    assert 0 < coarse.unclear < 1
    with pytest.raises(RuntimeError):  # an engine that fails is not replaced by the model here
        calibrate(Engine("broken", broken), classifier, probe(data.evaluate), SIZE)


def broken(x: Tensor) -> Tensor:
    raise RuntimeError(f"{len(x)} images are too many")


def test_an_engine_with_errors_that_stick_out_is_refused(
    classifier: Classifier, data: Data
) -> None:
    fine, far = off_by(classifier, 0.01), off_by(classifier, 100.0)

    def run(x: Tensor) -> Tensor:
        few = x.mean((1, 2, 3)) > 0.54
        return torch.where(few[:, None], far.run(x), fine.run(x))

    with pytest.raises(ClassifierError, match="errors of about one size"):
        calibrate(Engine("coarse", run), classifier, probe(data.evaluate), SIZE)


def test_logits_inside_the_band_are_those_of_the_model(classifier: Classifier, data: Data) -> None:
    x, y = data.evaluate.batch(np.arange(64))
    coarse = CoarseEngine(off_by(classifier, 0.1), band=1.0, unclear=0.0)
    with frozen(classifier) as model, torch.inference_mode():
        true = model.logits(x)
        screen = Screen(coarse, model)
        found = screen.logits(x, y, SIZE)
        raw = screen.coarse.logits(x)
    inside = margin(raw, y).abs() <= 1.0
    assert 0 < int(inside.sum()) == screen.unclear < 64 == screen.seen
    assert torch.equal(found[~inside], raw[~inside])
    assert torch.allclose(found[inside], true[inside], atol=1e-5)


def test_the_band_grows_with_the_errors_that_are_seen(classifier: Classifier, data: Data) -> None:
    x, y = data.evaluate.batch(np.arange(64))
    coarse = CoarseEngine(off_by(classifier, 2.0), band=1.0, unclear=0.0)
    with frozen(classifier) as model, torch.inference_mode():
        screen = Screen(coarse, model)
        screen.logits(x, y, SIZE)
        raw, true = screen.coarse.logits(x), model.logits(x)
    errors = (margin(raw, y) - margin(true, y)).abs()[margin(raw, y).abs() <= 1.0]
    assert screen.used.band == pytest.approx(SAFETY * float(errors.max()), rel=1e-3)
    assert screen.used.band > 2.0


def test_a_screen_that_costs_more_than_it_saves_is_left_out(classifier: Classifier) -> None:
    used: list[int] = []

    def nothing(x: Tensor) -> Tensor:
        used.append(len(x))
        return torch.full((len(x), CLASSES), torch.nan)

    x = torch.rand(ENOUGH, 3, 8, 8)
    y = torch.zeros(ENOUGH, dtype=torch.int64)
    coarse = CoarseEngine(Engine("coarse", nothing), band=1.0, unclear=0.0, cost=0.5)
    with frozen(classifier) as model, torch.inference_mode():
        true = model.logits(x)
        screen = Screen(coarse, model)
        for turn in range(2):
            assert torch.allclose(screen.logits(x, y, ENOUGH), true, atol=1e-5)
            assert used == [ENOUGH], turn
            assert model.calls == (turn + 2) * ENOUGH


def test_what_is_read_off_logits_comes_from_the_model(classifier: Classifier, data: Data) -> None:
    ready = screened(classifier, data, off_by(classifier, 0.1))
    sums = [
        measure(Clean(), each, data.evaluate, clean_correct=np.zeros(64, bool)).sums
        for each in (ready, replace(ready, coarse=None))
    ]
    assert sums[0] is not None
    assert sums[1] is not None
    assert np.array_equal(sums[0], sums[1])


def made_by(make: Callable[[Classifier, Tensor], Engine]) -> forward_engines.EngineKind:
    return replace(forward_engines.KINDS[BFLOAT16], make=make)


@pytest.mark.parametrize(("error", "kept"), [(0.001, BFLOAT16), (100.0, EAGER)])
def test_auto_keeps_a_screen_that_leaves_little_to_the_model(
    monkeypatch: pytest.MonkeyPatch, classifier: Classifier, data: Data, error: float, kept: str
) -> None:
    def make(classifier: Classifier, x: Tensor) -> Engine:
        return replace(off_by(classifier, error), name=BFLOAT16, batch=len(x))

    monkeypatch.setattr(prepare_classifier, "KINDS", {BFLOAT16: made_by(make)})
    monkeypatch.setattr(prepare_classifier, "_seconds", lambda *_, **__: [0.5, 1.0])
    ready = prepare(
        classifier, probe(data.evaluate), classes=CLASSES, micro_batch=SIZE, form=(), passes=1e12
    )
    assert ready.engine == kept
    if ready.coarse is not None:
        faster = ready.images_per_second / ready.eager_images_per_second
        assert faster == pytest.approx(1 / (0.5 + ready.coarse.unclear))


def test_tasks_and_old_processors_have_no_screen(
    monkeypatch: pytest.MonkeyPatch, classifier: Classifier
) -> None:
    x = torch.rand(20, 3, 8, 8)
    task = Task(
        correct=lambda out, y: out.argmax(1) == y, score=None, meaning="right", classes=True
    )
    data = from_arrays(x, torch.arange(20) % CLASSES, shares=(0.0, 0.0), task=task)
    ask = partial(prepare, classes=CLASSES, micro_batch=SIZE, engine=BFLOAT16)
    with pytest.raises(ClassifierError, match="`engine` bfloat16 must be left out with a task"):
        monkeypatch.setattr(
            torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False
        )
        ask(classifier.for_data(data), x)
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    with pytest.raises(ClassifierError, match="`engine` bfloat16 needs a processor that computes"):
        ask(classifier, x)
