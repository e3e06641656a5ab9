"""User code cannot end a run as if it had succeeded; Ctrl-C still can."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nppr
from helpers import evaluate_part
from nppr.core.budget import Budget
from nppr.core.task import Task
from nppr.errors import ClassifierError, DataError, NpprError, TaskError
from nppr.measuring.measurement import measure
from nppr.models import Classifier, frozen
from nppr.sources.custom import CustomNoise
from nppr.system.user_code import ProcessEnded, contain_exits
from nppr.testing import assert_robust

ENDINGS = [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: type(each).__name__)
def test_what_ends_a_process_becomes_an_error(ending: BaseException) -> None:
    with pytest.raises(ProcessEnded, match=type(ending).__name__), contain_exits():
        raise ending


def test_ctrl_c_passes() -> None:
    with pytest.raises(KeyboardInterrupt), contain_exits():
        signal.raise_signal(signal.SIGINT)


def test_ordinary_errors_pass() -> None:
    with pytest.raises(ValueError, match="as it is"), contain_exits():
        raise ValueError("as it is")


class Ending(nn.Module):
    """A model that ends the process at its n-th call."""

    def __init__(self, ending: BaseException, after: int = 0) -> None:
        super().__init__()
        self.ending, self.left = ending, after
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise self.ending
        score = (x.flatten(1) * self.weight).sum(1)
        return torch.stack([score, -score], 1)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: type(each).__name__)
def test_a_model_that_ends_the_process_has_failed(ending: BaseException) -> None:
    with (
        frozen(Classifier(Ending(ending))) as model,
        pytest.raises(ClassifierError, match=f"failed: it raised {type(ending).__name__}"),
    ):
        model.logits(torch.rand(2, 1, 2, 2))


class EndingBackward(torch.autograd.Function):
    """The identity, whose gradient ends the process."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, *_gradient: Tensor) -> Tensor:
        raise SystemExit(0)


def test_a_gradient_that_ends_the_process_has_failed() -> None:
    def model(x: Tensor) -> Tensor:
        flat: Tensor = EndingBackward.apply(x.flatten(1))  # type: ignore[no-untyped-call]
        return flat

    with frozen(Classifier(model)) as known, pytest.raises(ProcessEnded):
        known.gradient(lambda logits: logits.sum(1), torch.rand(2, 1, 2, 2))


def test_tasks_noise_and_transformations_that_end_the_process_have_failed() -> None:
    def leave(*_: object) -> Tensor:
        raise SystemExit(0)

    with pytest.raises(TaskError, match="it raised SystemExit"):
        Task(correct=leave).to_classes(torch.zeros(1, 2), torch.zeros(1))
    box = nppr.CustomTransform({"a": (0.0, 1.0)}, leave)
    with pytest.raises(DataError, match="it raised SystemExit"):
        box.images(torch.zeros(1, 1, 2, 2), torch.zeros(1, 1))
    source = CustomNoise(Budget.linf(0.1), leave, label="leaving")
    split = evaluate_part(torch.rand(2, 1, 2, 2), [0, 1])
    with pytest.raises(ProcessEnded, match="SystemExit"):
        measure(source, Classifier(Ending(SystemExit(), 10**6)), split, classes=2, draws=2)


class EndingState(nn.Module):
    """A model that ends the process where its weights are read."""

    def __init__(self, ending: BaseException) -> None:
        super().__init__()
        self.ending, self.layer = ending, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x.flatten(1))
        return found

    def state_dict(self, *_: Any, **__: Any) -> Any:
        raise self.ending


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda each: type(each).__name__)
def test_a_gate_fails_if_the_weights_cannot_be_read(ending: BaseException) -> None:
    x, y = torch.rand(60, 1, 2, 2), torch.arange(60) % 2
    policy = {"eps": "0.1", "require": ["PR uniform >= 0.01"]}
    with pytest.raises(ProcessEnded, match=type(ending).__name__):
        assert_robust(EndingState(ending), (x, y), policy)


def test_a_console_that_nobody_reads_may_end_the_program() -> None:
    with pytest.raises(SystemExit), contain_exits():
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1) from None


def test_a_data_set_that_ends_the_process_has_failed() -> None:
    class Leaving(torch.utils.data.Dataset[tuple[Tensor, int]]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, position: int) -> tuple[Tensor, int]:
            raise SystemExit(0)

    with pytest.raises(DataError, match="item 0 of the Dataset"):
        nppr.load_data(Leaving())


@pytest.mark.parametrize("ending", ENDINGS[:3], ids=lambda each: type(each).__name__)
def test_a_gate_is_never_green_when_the_model_ends_the_process(ending: BaseException) -> None:
    x, y = torch.rand(60, 1, 2, 2), torch.zeros(60, dtype=torch.int64)
    y[0] = 1
    policy = {"eps": "0.1", "require": ["PR uniform >= 0.01"]}
    for after in (0, 1, 5, 20):  # while it is checked, prepared and measured
        with pytest.raises((AssertionError, NpprError), match=type(ending).__name__):
            assert_robust(Ending(ending, after), (x, y), policy)
