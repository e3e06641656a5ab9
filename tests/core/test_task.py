"""Tasks: what is judged, what is refused, and that everything read off tallies follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nppr
from helpers import grouped
from nppr.compare import compare
from nppr.core.budget import Budget
from nppr.core.task import TIE_SCORE, Task
from nppr.errors import InputError, TaskError
from nppr.noise.rungs import Dependency

INPUTS = 200


class Sum(torch.nn.Module):
    """The sum of all pixels, `(B, 1)`."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).sum(1, keepdim=True)


def near(outputs: Tensor, targets: Tensor) -> Tensor:
    return 0.25 - (outputs[:, 0] - targets).abs()


def known() -> tuple[Tensor, Tensor]:
    """Images of four pixels in the middle of the range, and their sums."""
    images = 0.4 + 0.2 * torch.rand(INPUTS, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    return images, images.flatten(1).sum(1)


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=20))
def test_an_answer_is_right_exactly_where_the_score_is_above_0(scores: list[float]) -> None:
    task = Task(score=lambda outputs, _: outputs[:, 0])
    logits, labels = task.to_classes(torch.tensor(scores)[:, None], torch.zeros(len(scores)))
    assert (logits.argmax(1) == labels).tolist() == [score > 0 for score in scores]
    margins = logits[:, 1] - logits[:, 0]
    assert margins.tolist() == pytest.approx(scores)


def test_the_kind_is_that_stated_or_that_of_classes() -> None:
    assert Task(score=near).kind == ""
    assert Task(score=near, kind="regression").kind == "regression"
    assert Task(score=near, classes=True).kind == "classification"
    assert Task(score=near, classes=True, kind="top-2").kind == "top-2"


def test_on_the_edge_the_predicate_decides() -> None:
    task = Task(
        correct=lambda outputs, _: outputs[:, 0] >= 0,
        score=lambda outputs, _: outputs[:, 0],
    )
    logits, labels = task.to_classes(torch.tensor([[0.0], [-TIE_SCORE / 2], [1.0]]), torch.zeros(3))
    assert (logits.argmax(1) == labels).tolist() == [True, False, True]


def test_a_predicate_alone_gives_no_gradient() -> None:
    outputs = torch.zeros(3, 1, requires_grad=True)
    logits, _ = Task(correct=lambda z, _: z[:, 0] > -1).to_classes(outputs, torch.zeros(3))
    assert not logits.requires_grad


WRONG: dict[str, tuple[Callable[..., object], str]] = {
    "shape": (lambda outputs, _: outputs, "(3, 1) for 3 inputs"),
    "type": (lambda outputs, _: (outputs[:, 0] > 0).tolist(), "got list"),
    "integers": (lambda outputs, _: outputs[:, 0].long(), "booleans"),
    "failure": (lambda outputs, _: outputs[:, 7], "it failed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_predicate_that_does_not_judge_is_refused(name: str) -> None:
    function, words = WRONG[name]
    with pytest.raises(TaskError, match=r"`task.correct` must") as error:
        Task(correct=function).to_classes(torch.zeros(3, 1), torch.zeros(3))  # type: ignore[arg-type]
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_scores_must_be_finite_floats_that_agree_with_the_predicate() -> None:
    outputs, targets = torch.ones(3, 1), torch.zeros(3)
    with pytest.raises(TaskError, match="finite"):
        Task(score=lambda z, _: z[:, 0] / 0).to_classes(outputs, targets)
    with pytest.raises(TaskError, match="floats"):
        Task(score=lambda z, _: z[:, 0] > 0).to_classes(outputs, targets)
    with pytest.raises(TaskError, match="differ for 3 of 3"):
        Task(correct=lambda z, _: z[:, 0] < 0, score=lambda z, _: z[:, 0]).to_classes(
            outputs, targets
        )
    with pytest.raises(TaskError, match="`correct` or `score`"):
        Task()


@pytest.fixture(scope="module")
def report() -> nppr.Report:
    task = Task(score=near, meaning="the sum is within 0.25")
    return nppr.assess(
        Sum(),
        known(),
        task=task,
        budget=Budget.linf(0.1),
        sources="nppr,uniform,pgd",
        search=nppr.Search(calls=4000),
        measure=nppr.Measure(draws=16),
    )


def test_the_worst_noise_of_a_sum_is_known(report: nppr.Report) -> None:
    """Four pixels moved by 0.1 move the sum by 0.4 > 0.25: no answer stays right."""
    values = {row.name: row.value for row in report.numbers if row.gamma is None}
    assert values["clean"] == 1
    assert values["pgd"] == 0
    found = [row for row in report.numbers if row.name == "nppr:independent"]
    assert found[0].value == pytest.approx(0, abs=0.02)


def test_uniform_noise_agrees_with_a_closed_form(report: nppr.Report) -> None:
    """Of four uniform numbers in [-0.1, 0.1], |sum| < 0.25 unless it is in a tail (Irwin-Hall)."""
    expected = 1 - 2 * 0.75**4 / 24  # the tail of four uniforms on [0, 1] below (2 - 1.25)
    row = next(row for row in report.numbers if row.name == "uniform" and row.gamma is None)
    assert row.value == pytest.approx(expected, abs=0.01)


def test_the_words_follow_the_task(report: nppr.Report) -> None:
    assert report.data.task == "the sum is within 0.25"
    assert report.data.classes == 1
    assert "correct if the sum is within 0.25" in " ".join(report.table().split())
    page = report.to_html()
    assert "An answer is correct if the sum is within 0.25." in page
    assert "this model stays correct" in page
    assert 'id="classes"' not in page
    assert "classified" not in page
    assert {rung.dependency for rung in report.ladder} <= {
        Dependency.INDEPENDENT, Dependency.INPUT, Dependency.PER_INPUT,
    }  # fmt: skip


def test_without_a_score_the_search_sees_right_and_wrong_only() -> None:
    task = Task(correct=lambda z, t: near(z, t) > 0)
    report = nppr.assess(
        Sum(),
        known(),
        task=task,
        budget=Budget.linf(0.1),
        sources="nppr,pgd",
        search=nppr.Search(calls=8192, floor=(0.0,)),
        measure=nppr.Measure(draws=8),
    )
    assert "by-scores" in {flag.id for flag in report.flags}
    rows = {row.name: row for row in report.numbers if row.value is not None}
    assert rows["nppr:independent"].value == pytest.approx(0, abs=0.05)
    attack = next(row for row in report.numbers if row.name == "pgd")
    assert attack.error is not None  # no gradient leads an attack


def test_targets_that_are_classes_keep_their_classes() -> None:
    data = nppr.load_data("digits")
    images, labels = data.evaluate.batch(data.evaluate.indices.argsort())
    task = Task(correct=lambda z, y: z.argmax(1) == y, classes=True)
    report = nppr.assess(
        "digits-cnn",
        (images, labels),
        task=task,
        budget=Budget.linf(0.1),
        sources="uniform",
        measure=nppr.Measure(draws=8),
    )
    plain = nppr.assess(
        "digits-cnn",
        (images, labels),
        budget=Budget.linf(0.1),
        sources="uniform",
        measure=nppr.Measure(draws=8),
    )
    assert report.data.classes == 10
    assert report.per_input is not None
    assert plain.per_input is not None
    for name in ("clean", "uniform"):
        ours, theirs = report.per_input.of(name), plain.per_input.of(name)
        assert ours["correct"].tolist() == theirs["correct"].tolist()


def test_targets_identify_a_run(tmp_path: Path) -> None:
    images, sums = known()

    def run(targets: Tensor, *, resume: bool) -> None:
        nppr.assess(
            Sum(),
            (images, targets),
            task=Task(score=near),
            budget=Budget.linf(0.1),
            sources="uniform",
            measure=nppr.Measure(draws=4),
            run=nppr.Run(out=tmp_path / "run", resume=resume),
        )

    run(sums, resume=False)
    run(sums, resume=True)
    with pytest.raises(InputError, match="another fingerprint"):
        run(sums + 0.1, resume=True)


def test_a_task_needs_targets_in_memory() -> None:
    with pytest.raises(InputError, match="`task` must be given with a pair"):
        nppr.assess("digits-cnn", "digits", task=Task(score=near), budget=Budget.linf(0.1))


def test_a_predicate_that_fails_costs_one_line_and_no_folder(tmp_path: Path) -> None:
    out = tmp_path / "run"
    task = Task(correct=lambda z, _: z)
    with pytest.raises(TaskError, match="one entry per input"):
        nppr.assess(
            Sum(),
            known(),
            task=task,
            budget=Budget.linf(0.1),
            measure=nppr.Measure(draws=4),
            run=nppr.Run(out=out),
        )
    assert not (out / "report.json").exists()


@pytest.mark.parametrize(
    ("sources", "kwargs"),
    [("autoattack", {"task": Task(score=near)}), ("brightness", {"input_range": (0, 1)})],
)
def test_sources_that_do_not_suit_the_data_are_refused(
    sources: str, kwargs: dict[str, Any]
) -> None:
    images, sums = known()
    labels = (sums > 2).long()
    data = (images, sums) if "task" in kwargs else (images.flatten(1), labels)
    model = Sum() if "task" in kwargs else torch.nn.Linear(4, 2)
    with pytest.raises(InputError, match="`sources` must suit the data"):
        nppr.assess(model, data, budget=Budget.linf(0.1), sources=sources, **grouped(**kwargs))


SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "numbers": lambda x: x.flatten(1).sum(1),
    "masks": lambda x: x.flatten(1) > 0.45,
    "whole numbers": lambda x: (10 * x).long(),
}


@pytest.mark.parametrize("name", SHAPES)
def test_outputs_have_any_shape_and_type(name: str) -> None:
    images, sums = known()
    model = SHAPES[name]
    task = Task(correct=lambda z, _: z.double().reshape(len(z), -1).mean(1) > 0.5)
    report = nppr.assess(
        model,
        (images, sums),
        task=task,
        budget=Budget.linf(0.1),
        sources="uniform",
        measure=nppr.Measure(draws=4),
    )
    assert report.per_input is not None
    right = task.to_classes(model(images), sums)[0].argmax(1)
    counted = report.per_input.of("clean")
    assert counted["correct"].tolist() == right[counted["index"]].tolist()


def test_the_unit_of_a_score_does_not_matter() -> None:
    values = []
    for unit in (1e-3, 1.0, 1e4):
        task = Task(score=lambda z, t, unit=unit: unit * near(z, t))  # type: ignore[misc]
        report = nppr.assess(
            Sum(),
            known(),
            task=task,
            budget=Budget.linf(0.07),
            sources="pgd",
            measure=nppr.Measure(draws=4),
        )
        values.append(next(row.value for row in report.numbers if row.name == "pgd"))
    assert values[0] == values[1] == values[2]


def test_whole_numbers_are_no_classes_by_themselves() -> None:
    images, sums = known()
    data = nppr.from_arrays(images, (100 * sums).long(), task=Task(score=near))
    assert data.classes == 1


def test_a_task_of_the_same_words_is_not_resumed(tmp_path: Path) -> None:
    def run(tolerance: float, folder: str) -> None:
        task = Task(score=lambda z, t: tolerance - (z[:, 0] - t).abs(), meaning="it is near")
        nppr.assess(
            Sum(),
            known(),
            task=task,
            budget=Budget.linf(0.1),
            sources="uniform",
            measure=nppr.Measure(draws=4),
            run=nppr.Run(out=tmp_path / folder, resume=(tmp_path / folder).exists()),
        )

    run(0.25, "a")
    run(0.25, "a")
    with pytest.raises(InputError, match="task_fingerprint"):
        run(0.05, "a")
    run(0.05, "b")
    with pytest.raises(InputError, match="judge answers alike"):
        compare([tmp_path / "a", tmp_path / "b"])


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (torch.full((INPUTS,), float("nan")), "finite numbers"),
        (["a"] * INPUTS, "finite numbers"),
        (torch.zeros(3), "inputs and targets must have the same length"),
    ],
)
def test_targets_are_numbers_one_for_every_input(targets: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        nppr.from_arrays(known()[0], targets, task=Task(score=near))


def test_a_function_is_no_task() -> None:
    with pytest.raises(InputError, match="must be a Task"):
        nppr.assess(Sum(), known(), task=near, budget=Budget.linf(0.1))  # type: ignore[arg-type]


def test_outputs_that_a_model_need_not_give_do_not_stop_a_run() -> None:
    """A score that is not finite for negative outputs, of which the model has none."""
    task = Task(score=lambda z, t: 0.25 - (z[:, 0].log() - t.log()).abs())
    report = nppr.assess(
        Sum(),
        known(),
        task=task,
        budget=Budget.linf(0.1),
        sources="uniform",
        measure=nppr.Measure(draws=4),
    )
    assert report.data.task_fingerprint is not None
