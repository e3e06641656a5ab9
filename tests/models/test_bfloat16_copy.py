"""A copy in 16-bit floats is made only if it is asked for, of models without steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nppr.core.budget import Budget
from nppr.data import Data, from_arrays
from nppr.errors import ClassifierError, SpecError
from nppr.measuring.measurement import measure, probe
from nppr.models import Classifier, load_classifier, prepare
from nppr.models.bfloat16_copy import computes_in_bfloat16
from nppr.sources import Uniform
from nppr.system.specs import BFLOAT16, EAGER

NEEDS_BFLOAT16 = pytest.mark.skipif(
    not computes_in_bfloat16(torch.device("cpu")), reason="16-bit floats are slow here"
)


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


class Grouped(Small):
    """Its normalisation checks shapes, which is not a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 8)  # type: ignore[assignment]


class Experts(Small):
    """Its answer comes from one of two heads: a small error can choose the other one."""

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        return torch.where(logits[:, :1] > logits[:, 1:2], logits, -logits)


class Flagging(Small):
    """A bright image adds to one logit: the cast to an integer is a step."""

    def forward(self, x: Tensor) -> Tensor:
        bright = (x.mean((1, 2, 3)) * 2).to(torch.int32).float()
        return super().forward(x) + bright[:, None] * torch.eye(4)[0]


def images(classes: int = 4, number: int = 40, side: int = 8) -> Data:
    x = torch.rand(number, 3, side, side, generator=torch.Generator().manual_seed(0))
    return from_arrays(x, torch.arange(number) % classes, shares=(0.0, 0.0))


def test_the_default_is_exact() -> None:
    data = images()
    ready = prepare(Classifier(Small()), probe(data.evaluate), classes=4)
    assert ready.engine == EAGER
    assert ready.screening is None
    assert ready.fast.bfloat16_copy is None


@NEEDS_BFLOAT16
@pytest.mark.parametrize("name", ["small", pytest.param("resnet20", marks=pytest.mark.slow)])
def test_screened_counts_are_those_of_the_model(name: str) -> None:
    torch.manual_seed(0)
    data = images(4 if name == "small" else 10, 400, 16)
    classifier = Classifier(Small())
    if name == "resnet20":
        classifier = load_classifier("resnet20", weights="random", data=data)
    tallies = []
    for engine in (EAGER, BFLOAT16):
        classes = 4 if name == "small" else 10
        ready = prepare(
            classifier, probe(data.evaluate), classes=classes, micro_batch=32, engine=engine
        )
        assert ready.engine == engine
        everything = np.ones(len(data.evaluate), bool)
        source = Uniform(Budget.linf(0.2))
        tallies.append(measure(source, ready, data.evaluate, draws=16, clean_correct=everything))
    exact, screened = tallies
    assert exact.audit is None
    assert screened.audit is not None
    assert 0 < screened.audit.audited < screened.audit.alone <= 6400
    assert not screened.audit.discarded
    assert np.array_equal(exact.correct, screened.correct)
    assert exact.calls == screened.calls


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Branching(), "to a Python float might cause the trace"),
        (Experts(), "continuous, got one with aten::gt"),
        (Flagging(), r"aten::to \(whole numbers\)"),
        (lambda x: x.flatten(1)[:, :4], "needs a PyTorch module, got a plain function"),
    ],
    ids=["branch", "experts", "cast", "function"],
)
def test_models_that_do_not_suit_are_told_why(
    monkeypatch: pytest.MonkeyPatch, model: nn.Module, reason: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    with pytest.raises(ClassifierError, match=reason):
        prepare(Classifier(model), probe(images().evaluate), classes=4, engine=BFLOAT16)


def test_layers_of_pytorch_may_check_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    ready = prepare(Classifier(Grouped()), probe(images().evaluate), classes=4, engine=BFLOAT16)
    assert ready.engine == BFLOAT16


@pytest.mark.parametrize("engine", ["auto", "onnx", "inductor", "bfloat"])
def test_other_engines_are_named(engine: str) -> None:
    with pytest.raises(SpecError, match="`engine` must be one of bfloat16, eager"):
        prepare(Classifier(Small()), probe(images().evaluate), classes=4, engine=engine)
