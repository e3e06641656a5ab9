"""Engines give the counts of the model, or are not used."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nppr
from nppr.assessment.prepare import prepare_run
from nppr.budget import Budget
from nppr.classifiers import Classifier, frozen, load_classifier, prepare
from nppr.classifiers.classifier import Engine
from nppr.classifiers.forward_engines import KINDS, computes_in_bfloat16
from nppr.data import Data, from_arrays, load_data
from nppr.errors import ClassifierError, SpecError
from nppr.measurement import measure, probe
from nppr.run_settings import RunSettings
from nppr.sources import PGD, Uniform
from nppr.specs import AUTO, BFLOAT16, EAGER, INDUCTOR, ONNX

MANY = 1e12
BUDGET = Budget.linf("8/255")


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.relu(self.norm(self.convolution(x))).mean((2, 3)))
        return logits


class Branching(Small):
    """Its answer depends on the inputs by a branch, which a trace would freeze."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1.0 if float(x.max()) <= 1 else -1.0)


def images(classes: int = 10, number: int = 40, side: int = 32) -> Data:
    x = torch.rand(number, 3, side, side, generator=torch.Generator().manual_seed(0))
    return from_arrays(x, torch.arange(number) % classes, shares=(0.0, 0.0))


def resnet() -> tuple[Classifier, Data]:
    torch.manual_seed(0)
    data = images()
    return load_classifier("resnet20", weights="random", data=data), data


NEEDS_BFLOAT16 = pytest.mark.skipif(
    not computes_in_bfloat16(torch.device("cpu")), reason="16-bit floats are slow here"
)


@pytest.mark.parametrize(
    "engine",
    [
        ONNX,
        pytest.param(BFLOAT16, marks=NEEDS_BFLOAT16),
        pytest.param(INDUCTOR, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("name", ["digits-cnn", "resnet20"])
def test_counts_do_not_depend_on_the_engine(name: str, engine: str) -> None:
    classifier, data = resnet()
    if name == "digits-cnn":
        data = load_data("digits").limit(inputs=60)
        classifier = load_classifier(name, data=data)
    tallies = []
    for each in (EAGER, engine):
        ready = prepare(classifier, probe(data.evaluate), classes=10, micro_batch=32, engine=each)
        assert ready.engine == each
        tallies.append(measure(Uniform(Budget.linf(0.2)), ready, data.evaluate, draws=16))
    assert np.array_equal(tallies[0].correct, tallies[1].correct)
    assert np.array_equal(tallies[0].clean_correct, tallies[1].clean_correct)
    assert tallies[0].calls == tallies[1].calls
    assert 0 < tallies[0].correct.sum() < tallies[0].correct.size * 16


def test_gradients_and_features_come_from_the_model() -> None:
    data = images(4, side=8)
    ready = prepare(Classifier(Small()), probe(data.evaluate), classes=4, engine=ONNX)
    used: list[int] = []
    assert ready.fast.engine is not None
    run = ready.fast.engine.run

    def counted(x: Tensor) -> Tensor:
        used.append(len(x))
        return run(x)

    with frozen(ready.fast.with_engine(Engine(ONNX, counted))) as model:
        x, _ = data.evaluate.batch(np.arange(8))
        gradient, _ = model.gradient(lambda z: z.sum(1), x)
        assert gradient.shape == x.shape
        assert model.features(x).shape == (8, 8)
        assert not used
        with torch.inference_mode():
            model.logits(x)
        assert used == [8]
        assert model.calls == 24
    tally = measure(PGD(BUDGET, steps=2), ready, data.evaluate)
    assert tally.draws == 1


def test_short_runs_try_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def note(classifier: Classifier, x: Tensor) -> Engine:
        tried.append(f"{classifier.name} {len(x)}")
        raise RuntimeError

    for name, kind in KINDS.items():
        monkeypatch.setitem(KINDS, name, replace(kind, make=note))
    data = images(4, side=8)
    prepare(Classifier(Small()), probe(data.evaluate), classes=4, passes=10)
    assert not tried
    prepare(Classifier(Small()), probe(data.evaluate), classes=4, passes=MANY)
    assert len(tried) == len(KINDS)


def test_a_model_with_branches_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, data = Classifier(Branching()), images(4, side=8)
    with pytest.raises(ClassifierError, match="`engine` must be one that runs this model, onnx"):
        prepare(classifier, probe(data.evaluate), classes=4, engine=ONNX)
    monkeypatch.delitem(KINDS, INDUCTOR)
    ready = prepare(classifier, probe(data.evaluate), classes=4, passes=MANY)
    assert ready.engine == EAGER


def test_a_model_with_a_branch_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    data = images(4, side=8)
    for engine in (ONNX, BFLOAT16):
        with pytest.raises(ClassifierError, match="to a Python float might cause the trace"):
            prepare(Classifier(Branching()), probe(data.evaluate), classes=4, engine=engine)


class Grouped(Small):
    """Its normalisation checks shapes, which is no branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)  # type: ignore[assignment]


def test_layers_of_pytorch_may_check_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    data = images(4, side=8)
    for engine in (ONNX, BFLOAT16):
        ready = prepare(Classifier(Grouped()), probe(data.evaluate), classes=4, engine=engine)
        assert ready.engine == engine


class Experts(Small):
    """Its answer comes from one of two heads: a small error can choose the other one."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return torch.where(logits[:, :1] > logits[:, 1:2], logits, -logits)


def test_a_model_that_takes_steps_is_not_screened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    data = images(4, side=8)
    with pytest.raises(ClassifierError, match="continuous, got one with aten::gt"):
        prepare(Classifier(Experts()), probe(data.evaluate), classes=4, engine=BFLOAT16)


@NEEDS_BFLOAT16
def test_close_decisions_of_16_bit_floats_are_repeated() -> None:
    torch.manual_seed(0)
    data, network = images(4, number=64), Small().eval()
    x, _ = data.evaluate.batch(np.arange(64))
    with torch.no_grad():  # every class is the answer for some of the images
        network.head.bias.sub_(network(x).mean(0))
    classifier = Classifier(network)
    ready = prepare(
        classifier, probe(data.evaluate), classes=4, micro_batch=16, form=(), engine=BFLOAT16
    )
    assert ready.coarse is not None
    alone = replace(ready, coarse=None, fast=ready.fast.with_engine(ready.coarse.engine))
    exact, screened, raw = (
        measure(Uniform(Budget.linf(0.1)), each, data.evaluate, draws=50, classes=4).correct
        for each in (replace(ready, coarse=None), ready, alone)
    )
    assert np.array_equal(screened, exact)
    assert not np.array_equal(raw, exact), "otherwise nothing was repeated"


def test_an_engine_with_other_answers_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(classifier: Classifier, x: Tensor) -> Engine:
        assert classifier.module is not None
        module, size = classifier.module, len(x)
        return Engine(ONNX, lambda x: module(x) * 1.01, size)

    monkeypatch.setitem(KINDS, ONNX, replace(KINDS[ONNX], make=wrong))
    data = images(4, side=8)
    with pytest.raises(ClassifierError, match="must give the logits of the model"):
        prepare(Classifier(Small()), probe(data.evaluate), classes=4, engine=ONNX)


def test_an_engine_that_fails_later_is_replaced_by_the_model() -> None:
    def fails(x: Tensor) -> Tensor:
        raise RuntimeError(f"{len(x)} images are too many")

    module = Small().eval()
    classifier = Classifier(module).with_engine(Engine(ONNX, fails))
    x = torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        assert torch.equal(classifier.forward(x), module(x))


def test_a_missing_extra_is_named_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "onnxruntime" else found(name, package),
    )
    data = images(4, side=8)
    with pytest.raises(ClassifierError, match=r"`engine` onnx needs the extra `onnx`: pip install"):
        prepare(Classifier(Small()), probe(data.evaluate), classes=4, engine=ONNX)
    for engine in (BFLOAT16, INDUCTOR):
        monkeypatch.delitem(KINDS, engine)
    ready = prepare(Classifier(Small()), probe(data.evaluate), classes=4, passes=MANY)
    assert ready.engine == EAGER


def test_an_unknown_engine_is_named() -> None:
    data = images(4, side=8)
    with pytest.raises(SpecError, match="`engine` must be one of"):
        prepare(Classifier(Small()), probe(data.evaluate), classes=4, engine="onxx")


def test_callables_run_as_they_are() -> None:
    module = Small().eval()
    data = images(4, side=8)
    ready = prepare(Classifier(lambda x: module(x)), probe(data.evaluate), classes=4, passes=MANY)
    assert ready.engine == EAGER


def test_a_resumed_run_repeats_its_engine(tmp_path: Path) -> None:
    data, out = images(4, side=8), tmp_path / "run"
    classifier, settings = Classifier(Small(), name="small"), RunSettings()
    first = prepare_run(classifier, data, BUDGET, settings, engine=ONNX, out=out)
    assert first.classifier.engine == ONNX
    again = prepare_run(classifier, data, BUDGET, settings, out=out, resume=True)
    assert again.classifier.engine == ONNX
    held = json.loads((out / "run.json").read_text())
    del held["division"]["engine"]  # as written before there were engines
    (out / "run.json").write_text(json.dumps(held))
    again = prepare_run(classifier, data, BUDGET, settings, passes=MANY, out=out, resume=True)
    assert again.classifier.engine == EAGER


def test_the_report_states_the_engine() -> None:
    data = images(4, side=8)
    model = Classifier(Small(), name="small")
    for engine, stated in ((AUTO, EAGER), (ONNX, ONNX)):
        report = nppr.assess(model, data, budget=BUDGET, sources="uniform", draws=4, engine=engine)
        assert report.environment.engine == stated
