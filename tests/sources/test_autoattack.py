"""AutoAttack against pyautoattack alone, and what it leaves as it was."""

from __future__ import annotations

import importlib.util
import logging
import sys
from types import FrameType
from typing import Any

import numpy as np
import pyautoattack
import pytest
import torch
from torch import Tensor, nn

import nppr
from helpers import evaluate_part
from nppr.core.budget import Budget
from nppr.core.tally import Metric
from nppr.data import load_data
from nppr.errors import SpecError
from nppr.measuring.measurement import measure
from nppr.models import Classifier, load_classifier, prepare
from nppr.sources import PGD, AutoAttack, parse_sources

pytestmark = pytest.mark.slow

DATA = load_data("digits").limit(inputs=20)
RAN: list[str] = []


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of the standard version, but few steps of each; `RAN` lists those that ran."""
    standard = pyautoattack.AutoAttack._set_version
    evaluate = pyautoattack.AutoAttack.run_standard_evaluation

    def quick(self: Any, version: str = "standard") -> None:
        standard(self, version)
        self.square.n_queries = 20
        for part in (self.apgd, self.apgd_targeted, self.fab):
            part.n_iter = 4

    def noted(self: Any, *arguments: Any, **options: Any) -> Any:
        RAN[:] = self.attacks_to_run
        return evaluate(self, *arguments, **options)

    monkeypatch.setattr(pyautoattack.AutoAttack, "_set_version", quick)
    monkeypatch.setattr(pyautoattack.AutoAttack, "run_standard_evaluation", noted)


class Normalised(nn.Module):
    """A model with its normalisation, by hand."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        assert classifier.module is not None
        self.inner = classifier.module
        self.mean = (classifier.mean or (0.0,))[0]
        self.std = (classifier.std or (1.0,))[0]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner((x - self.mean) / self.std)
        return logits


def alone(known: Classifier, budget: Budget, batch: int, seed: int) -> Tensor:
    """Which inputs survive pyautoattack itself."""
    x, y = DATA.evaluate.batch(np.arange(len(DATA.evaluate)))
    module = Normalised(known).eval()
    norm = {"linf": "Linf", "l2": "L2"}[budget.norm.name]
    attack = pyautoattack.AutoAttack(module, norm=norm, eps=budget.radius, seed=seed)
    with torch.random.fork_rng():
        moved, _ = attack.run_standard_evaluation(x, y, batch_size=batch)
    with torch.no_grad():
        survived: Tensor = module(moved).argmax(1) == y
    return survived


def ours(known: Classifier, budget: Budget, batch: int, seed: int, micro_batch: int) -> list[int]:
    x, _ = DATA.evaluate.batch(np.arange(4))
    ready = prepare(known, x, classes=10, micro_batch=micro_batch, speedups=())
    tally = measure(AutoAttack(budget, batch), ready, DATA.evaluate, seed=seed)
    return [int(right) for right in tally.correct]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("budget", [Budget.linf(0.08), Budget.l2(0.4)], ids=str)
def test_it_is_pyautoattack_input_by_input(budget: Budget) -> None:
    """At a radius where every part has something to do, whatever the micro-batch."""
    known = load_classifier("digits-cnn")
    expected = alone(known, budget, 8, seed=3).long().tolist()
    assert 0 < sum(expected) < 20
    for micro_batch in (5, 64):
        assert ours(known, budget, 8, 3, micro_batch) == expected
    assert RAN == ["apgd-ce", "apgd-t", "fab-t", "square"]


def test_with_all_its_steps_it_is_pyautoattack_too() -> None:
    known = load_classifier("digits-cnn")
    expected = alone(known, Budget.linf(0.2), 8, seed=0).long().tolist()
    assert ours(known, Budget.linf(0.2), 8, 0, micro_batch=64) == expected


class Planes(nn.Module):
    """A linear classifier of some classes on images of four pixels."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(classes)
        self.w = nn.Parameter(torch.randn(classes, 4, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - 0.5) @ self.w.T


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("classes", "left_out"), [(2, ("apgd-t",)), (3, ("apgd-t",)), (4, ()), (12, ())]
)
def test_few_classes_do_without_the_parts_that_need_more(
    classes: int, left_out: tuple[str, ...]
) -> None:
    """AR of a linear classifier is exact: the distance to the nearest other class decides."""
    network = Planes(classes)
    generator = torch.Generator().manual_seed(0)
    images = 0.5 + 0.2 * (torch.rand(30, 1, 2, 2, generator=generator) - 0.5)
    with torch.no_grad():
        logits = network(images)
        labels = logits.argmax(1)
        gaps = logits.gather(1, labels[:, None]) - logits
        reach = (network.w[labels][:, None] - network.w[None]).abs().sum(2)
        distance = torch.where(reach > 0, gaps / reach, torch.inf).amin(1)
    radius = float(distance.median())
    sure = (distance / radius - 1).abs() > 0.05  # the few steps here are not exact to the last
    source = AutoAttack(Budget.linf(radius), batch=8)
    part = evaluate_part(images, labels)
    tally = measure(source, Classifier(network), part, classes=classes)
    assert tally.clean_correct.all()
    unbroken = torch.from_numpy(tally.correct == 1)
    assert torch.equal(unbroken[sure], (distance > radius)[sure])
    assert source.missing_parts(classes) == left_out
    assert set(source.parts(classes)) | set(left_out) == {"apgd-ce", "apgd-t", "fab-t", "square"}
    assert tuple(RAN) == source.parts(classes)


@pytest.mark.usefixtures("few_steps")
def test_in_an_assessment_it_is_an_attack() -> None:
    report = nppr.assess(
        budget=Budget.linf(0.1),
        sources="autoattack:batch=5,pgd",
        measure=nppr.Measure(inputs=12, draws=4),
    )
    row = report.headline("autoattack:batch=5", Metric.AR)
    assert row is not None
    assert row.error is None
    assert report.headline("merged", Metric.AR) is not None


@pytest.mark.usefixtures("few_steps")
def test_inputs_that_nothing_breaks_are_left_as_they_are() -> None:
    part = evaluate_part(torch.full((3, 1, 2, 2), 0.9), [0, 0, 0])

    def sure(x: Tensor) -> Tensor:
        brightness = x.flatten(1).sum(1)
        return torch.stack([brightness, torch.zeros_like(brightness)], 1)

    source = AutoAttack(Budget.linf(0.01))
    tally = measure(source, Classifier(sure), part, classes=2)
    assert tally.correct.tolist() == [1, 1, 1]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("level", [logging.NOTSET, logging.ERROR])
def test_random_numbers_and_the_log_are_as_they_were(
    level: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("auto-attack")
    monkeypatch.setattr(log, "level", level)
    known = load_classifier("digits-cnn")
    torch.manual_seed(99)
    before = torch.get_rng_state()
    ours(known, Budget.linf(0.1), 8, 0, micro_batch=64)
    assert torch.equal(torch.get_rng_state(), before)
    assert log.level == level
    assert not [record for record in caplog.records if record.name == "auto-attack"]


@pytest.mark.usefixtures("few_steps")
def test_they_are_restored_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_arguments: Any, **_options: Any) -> None:
        torch.manual_seed(0)
        raise RuntimeError("pyautoattack failed")

    monkeypatch.setattr(pyautoattack.AutoAttack, "run_standard_evaluation", fails)
    log = logging.getLogger("auto-attack")
    level = log.level
    known = load_classifier("digits-cnn")
    torch.manual_seed(99)
    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="pyautoattack failed"):
        ours(known, Budget.linf(0.1), 8, 0, micro_batch=64)
    assert torch.equal(torch.get_rng_state(), before)
    assert log.level == level


@pytest.mark.usefixtures("few_steps")
def test_a_debugger_or_a_coverage_tool_keeps_tracing() -> None:
    """Pyautoattack looks for defences that change by a trace of its own."""

    def trace(frame: FrameType, event: str, argument: Any) -> None:  # noqa: ARG001
        return None

    known = load_classifier("digits-cnn")
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ours(known, Budget.linf(0.3), 8, 0, micro_batch=64)
        after = sys.gettrace()
    finally:
        sys.settrace(before)
    assert after is trace


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda name, *rest: None if name == "pyautoattack" else real(name, *rest),
    )  # fmt: skip
    for text in ("autoattack", "uniform,autoattack:batch=7"):
        with pytest.raises(SpecError, match=r"extra attacks.*pip install 'nppr\[attacks\]'"):
            parse_sources(text, Budget.linf(0.1))
    assert parse_sources("pgd", Budget.linf(0.1)) == [PGD(Budget.linf(0.1))]


@pytest.mark.parametrize("batch", [0, -3])
def test_bad_options_are_named(batch: int) -> None:
    with pytest.raises(SpecError, match="`batch` must be a whole number >= 1"):
        AutoAttack(Budget.linf(0.1), batch)
