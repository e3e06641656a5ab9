"""Rough gradients lead fits where they are faster and point the same way, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import open_run
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.data import Data, from_arrays, load_data
from nppr.errors import RunFolderError
from nppr.measuring.measurement import probe
from nppr.models import (
    SPEEDUPS,
    PreparedClassifier,
    load_classifier,
    prepare,
    prepare_classifier,
    with_rough_gradients,
)
from nppr.models.bfloat16_copy import Bfloat16Model
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.search_settings import default_settings
from nppr.settings import Measure
from nppr.sources import PGD
from nppr.system.specs import BFLOAT16, EAGER

BUDGET = Budget.linf("8/255")
SHORT = replace(
    default_settings(Family(Dependency.INDEPENDENT), calls=256).without_positions(),
    per_input_calls=0,
)


@pytest.fixture(autouse=True)
def computes_in_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)


def images(number: int = 24, shares: tuple[float, float] = (0.0, 0.0)) -> Data:
    x = torch.rand(number, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return from_arrays(x, torch.arange(number) % 10, shares=shares)


@pytest.fixture(scope="module")
def resnet() -> PreparedClassifier:
    torch.manual_seed(0)
    data = images()
    classifier = load_classifier("resnet20", weights="random", data=data)
    return prepare(classifier, probe(data.evaluate), classes=10, micro_batch=8, speedups=SPEEDUPS)


def test_rough_gradients_point_the_same_way_and_answers_stay_exact(
    resnet: PreparedClassifier,
) -> None:
    x, y = images().evaluate.batch(np.arange(24))
    rough = with_rough_gradients(resnet, x)
    assert resnet.fast.bfloat16_copy is None
    assert rough.fast.bfloat16_copy is not None

    def loss(logits: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, y, reduction="none")

    with resnet.frozen() as exact, rough.frozen() as models:
        gradient, logits = exact.fast.gradient(loss, x)
        own, close = models.fast.gradient(loss, x, rough=True)
        assert torch.equal(models.fast.gradient(loss, x)[0], gradient)
        assert torch.equal(models.fast.logits(x), exact.fast.logits(x))
    assert own.dtype == close.dtype == torch.float32
    assert not torch.equal(own, gradient)
    assert float((close - logits).abs().max()) < 0.1 * float(logits.abs().max())
    cosines = nn.functional.cosine_similarity(own.flatten(1), gradient.flatten(1))
    assert float(cosines.mean()) > 0.9


def test_attacks_take_exact_gradients(resnet: PreparedClassifier) -> None:
    x, y = images().evaluate.batch(np.arange(8))
    draws = DrawBlock(0, "evaluate", tuple(range(8)), 0, 1, x.device, 1)
    found = []
    for each in (resnet, with_rough_gradients(resnet, x)):
        with each.frozen() as models:
            found.append(PGD(BUDGET, steps=3).perturb(models.fast, x, y, draws))
    assert torch.equal(found[0], found[1])


def test_small_networks_other_directions_and_old_processors_stay_exact(
    monkeypatch: pytest.MonkeyPatch, resnet: PreparedClassifier
) -> None:
    digits = load_data("digits").limit(inputs=20)
    small = prepare(load_classifier("digits-cnn", data=digits), probe(digits.evaluate), classes=10)
    assert with_rough_gradients(small, probe(digits.evaluate)).fast.bfloat16_copy is None
    x = probe(images().evaluate)
    with monkeypatch.context() as patch:

        class Other(Bfloat16Model):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x.flip(-1))

        patch.setattr(prepare_classifier, "Bfloat16Model", Other)
        assert with_rough_gradients(resnet, x).fast.bfloat16_copy is None
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert with_rough_gradients(resnet, x).fast.bfloat16_copy is None
    assert (
        with_rough_gradients(resnet, x, True).fast.bfloat16_copy is not None
    )  # a run begun elsewhere


@pytest.mark.slow
def test_a_search_takes_them_the_same_in_every_run(resnet: PreparedClassifier) -> None:
    torch.manual_seed(0)
    data = images(64, (0.5, 0.25))
    classifier = resnet.original
    with torch.no_grad():  # labelled by the network: it is always correct
        assert classifier.module is not None
        classifier.module.eval()
        every = torch.cat([split.batch(np.arange(len(split)))[0] for split in data.splits])
        labels = classifier.forward(every).argmax(1)
    data = from_arrays(every, labels, classes=10, shares=(0.5, 0.25))
    found = []
    for micro_batch in (4, 16):
        settings = SHORT
        setup = open_run(
            classifier,
            data,
            BUDGET,
            Measure(engine=BFLOAT16),
            search=settings,
            batch_size=micro_batch,
        )
        search = setup.search(settings)
        guide = search.classifier.fast.bfloat16_copy
        assert guide is not None
        assert setup.classifier.fast.bfloat16_copy is None
        used: list[int] = []
        guide.register_forward_hook(lambda _, x, __, used=used: used.append(len(x[0])))
        found.append(search.run())
        assert sum(used) >= 256, "all calls of the fit"
    plain = open_run(classifier, data, BUDGET, Measure(), search=settings, batch_size=16)
    exact = plain.search(settings)
    assert exact.classifier.fast.bfloat16_copy is None
    first, second = (each[0].source.distribution.state_dict() for each in found)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_a_resumed_run_repeats_its_gradients(resnet: PreparedClassifier, tmp_path: Path) -> None:
    data, settings = images(64, (0.5, 0.25)), SHORT
    asked = partial(
        open_run, resnet.original, data, BUDGET, search=settings, resume=True, batch_size=16
    )
    for engine, guided in ((BFLOAT16, True), (EAGER, False)):
        for _ in range(2):
            with asked(Measure(engine=engine), out=tmp_path / engine) as setup:
                assert (setup.search(settings).classifier.fast.bfloat16_copy is not None) is guided
    with pytest.raises(RunFolderError, match="engine"):  # its numbers would be others
        asked(Measure(engine=EAGER), out=tmp_path / BFLOAT16)
