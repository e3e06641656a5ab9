"""The examples of tasks, signals and tables: their tallies are those of a loop written by hand."""

from __future__ import annotations

import html
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nppr
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.data import Data

FOLDER = Path(__file__).parents[1] / "examples"
DRAWS = 8


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TASKS = ("top-2", "regression", "segmentation", "detection")


@cache
def task_example(name: str) -> Any:
    """The model, data and settings of an example of a task; it is trained once."""
    return example("tasks").EXAMPLES[name]()


def is_right(name: str, outputs: Tensor, target: Tensor) -> bool:
    """Whether one answer is correct, in plain words of numpy."""
    found, true = outputs.detach().numpy(), target.numpy()
    if name == "top-2":
        return int(true) in np.argsort(found)[-2:]
    if name == "regression":
        return bool(abs(found[0] - true) < 100)
    if name == "segmentation":
        mask = found.ravel() > 0
        both, either = (mask & true.ravel()).sum(), (mask | true.ravel()).sum()
        return bool(both / max(1, either) >= 0.5)
    top, left = np.maximum(found[:2], true[:2])
    bottom, right = np.minimum(found[2:], true[2:])
    shared = max(0.0, bottom - top) * max(0.0, right - left)
    areas = [max(0.0, b[2] - b[0]) * max(0.0, b[3] - b[1]) for b in (found, true)]
    return bool(shared / (sum(areas) - shared) > 0.5)


def uniform_by_hand(
    data: Data, budget: Budget, position: int, low: Tensor, high: Tensor
) -> list[Tensor]:
    """The draws of one evaluated input under uniform noise, in its own unit, without nppr's loop."""
    split = data.evaluate
    index = int(split.indices[position])
    x, _ = split.batch(np.array([position]))
    block = DrawBlock(0, "evaluate", (index,), 0, DRAWS, torch.device("cpu"))
    delta = budget.uniform(block, "uniform", tuple(x.shape[1:]))[0]
    moved = (x[0] + delta).clamp(0, 1)
    shape = data.layout.shape if data.layout else x.shape[1:]
    scale = (-1, *[1] * (len(shape) - 1))
    return [
        low.view(scale) + each.reshape(shape) * (high - low).view(scale) for each in moved.float()
    ]


def compare(
    name: str,
    model: torch.nn.Module,
    data: Data,
    budget: Budget,
    targets: Tensor,
    ends: tuple[Tensor, ...],
) -> None:
    report = nppr.assess(
        model, data, budget=budget, sources="uniform", measure=nppr.Measure(draws=DRAWS)
    )
    assert report.per_input is not None
    counted = report.per_input.of("uniform")["correct"]
    some = range(0, len(data.evaluate), 7)
    with torch.no_grad():
        for position in some:
            images = uniform_by_hand(data, budget, position, *ends)
            target = targets[int(data.evaluate.indices[position])]
            right = [is_right(name, model(image[None])[0], target) for image in images]
            assert int(counted[position]) == sum(right), position


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_task_agrees_with_a_loop_by_hand(name: str) -> None:
    model, (x, y), settings = task_example(name)
    loaded = nppr.load_classifier(model).model
    assert isinstance(loaded, torch.nn.Module)
    low, high = settings.get("input_range", ([0.0], [1.0]))
    ends = torch.tensor(low).float(), torch.tensor(high).float()
    data = nppr.from_arrays(x, y, task=settings["task"], input_range=settings.get("input_range"))
    compare(name, loaded, data, settings["budget"], y, ends)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "waves"])
def test_other_inputs_agree_with_a_loop_by_hand(name: str) -> None:
    model, x, y, input_range = getattr(example("signals_and_tables"), name)()
    data = nppr.from_arrays(x, y, input_range=input_range)
    low, high = (torch.as_tensor(each).float().reshape(-1) for each in input_range)
    report = nppr.assess(
        model, data, budget=Budget.linf(0.1), sources="uniform", measure=nppr.Measure(draws=DRAWS)
    )
    assert report.per_input is not None
    counted = report.per_input.of("uniform")["correct"]
    with torch.no_grad():
        for position in range(0, len(data.evaluate), 7):
            images = uniform_by_hand(data, Budget.linf(0.1), position, low, high)
            answers = [int(model(image[None]).argmax()) for image in images]
            label = int(y[int(data.evaluate.indices[position])])
            assert int(counted[position]) == answers.count(label)


@pytest.mark.slow
def test_the_ladder_of_a_task_is_in_order() -> None:
    """The detector, whole as the example runs it, with fewer calls."""
    model, data, settings = task_example("detection")
    report = nppr.assess(
        model,
        data,
        search=nppr.Search(calls=8000),
        measure=nppr.Measure(draws=8, inputs=200),
        **settings,
    )
    values = {rung.name: rung.value for rung in report.ladder if not rung.floor}
    assert values["nppr:per-input"] <= values["nppr:input"] + 0.02
    assert values["nppr:input"] <= values["nppr:independent"] + 0.02
    assert report.grade.letter != "D"


def test_the_numbers_of_the_readme_are_those_of_the_picture() -> None:
    """Both come from one run of `make pictures`."""
    root = FOLDER.parent
    written = (root / "README.md").read_text().split("<!-- demo: written by make pictures -->")[1]
    numbers = re.findall(r"[0-9]+\.[0-9]", written.split("<!-- /demo -->")[0])
    shown = html.unescape((root / "docs" / "images" / "console.svg").read_text())
    assert len(numbers) == 8
    assert [number for number in numbers if number not in shown] == []
