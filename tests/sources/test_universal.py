"""The universal perturbation on problems where the best one is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import nppr
from helpers import Linear, evaluate_part, half_classifier, two_class_data
from nppr.core.budget import Budget
from nppr.core.tally import Evaluate, Fit, IntArray, Metric, Progress, Select
from nppr.data import Data, Split, StoredImages, load_data
from nppr.doctor.flags import NO_FIT_DATA
from nppr.errors import NoFitDataError, SpecError
from nppr.measuring.blocks import FileStore
from nppr.measuring.measurement import measure
from nppr.models import Classifier, load_classifier, prepare
from nppr.sources import Universal
from nppr.sources.base import PASSES_PER_CALL
from nppr.sources.universal import UniversalOn

pytestmark = pytest.mark.slow

W = torch.tensor([1.0, -2.0, 0.5, 1.5]).view(1, 2, 2)
CALLS = 42 * 64
"""14 epochs of 130 inputs, in steps of 64, 64 and 2."""

NAME = f"universal:calls={CALLS}"


def near(inputs: int, margin: float, seed: int = 0) -> Tensor:
    """Images of class 0 of `linear()`, all with this margin."""
    noise = 0.05 * torch.randn(inputs, 1, 2, 2, generator=torch.Generator().manual_seed(seed))
    along = (noise * W).sum((1, 2, 3), keepdim=True) * W / W.pow(2).sum()
    return 0.5 + noise - along + margin * W / W.pow(2).sum()


def linear() -> Classifier:
    return Classifier(Linear(W, -0.5 * float(W.sum())))


def fit_split(images: Tensor, labels: list[int]) -> Split[Fit]:
    return Split(Fit, StoredImages(images.numpy()), np.arange(len(images)), np.array(labels))


def fitted(budget: Budget, inputs: int, margin: float) -> UniversalOn:
    return Universal(budget, CALLS).fitted_on(
        linear(), fit_split(near(inputs, margin), [0] * inputs)
    )


@pytest.mark.parametrize("inputs", [40, 130])
@pytest.mark.parametrize("budget", [Budget.linf(0.1), Budget.l2(0.1)], ids=str)
def test_of_a_linear_classifier_it_is_the_worst_point_of_the_ball(
    budget: Budget, inputs: int
) -> None:
    """Against inputs of one class the same direction is the best for all: `-r` steepest w."""
    reach = 0.1 * float(W.abs().sum() if budget.norm.name == "linf" else W.norm())
    source = fitted(budget, inputs, 0.95 * reach)
    assert torch.allclose(source.delta, -0.1 * budget.norm.steepest(W), atol=1e-5)


@pytest.mark.parametrize("budget", [Budget.linf(0.1), Budget.l2(0.1)], ids=str)
def test_it_breaks_inputs_it_was_not_fitted_on(budget: Budget) -> None:
    """Those whose margin is less than `r |w|` in the dual norm, and no others."""
    reach = 0.1 * float(W.abs().sum() if budget.norm.name == "linf" else W.norm())
    shares = [0.5, 0.9, 0.99, 1.01, 1.1, 1.5]
    others = torch.cat([near(1, share * reach, seed=7) for share in shares])
    source = fitted(budget, 130, 0.95 * reach)
    tally = measure(source, linear(), evaluate_part(others, [0] * 6), classes=2)
    assert tally.clean_correct.all()
    assert (tally.correct == 0).tolist() == [share < 1 for share in shares]
    assert (tally.draws, tally.calls) == (1, 6)


def test_it_breaks_one_class_where_the_two_ask_for_opposite_directions() -> None:
    """No perturbation moves both sides of a linear classifier over its boundary."""
    images = torch.cat([near(60, 0.2), near(60, -0.2, seed=1)])
    source = Universal(Budget.linf(0.1), CALLS).fitted_on(
        linear(), fit_split(images, [0] * 60 + [1] * 60)
    )
    tally = measure(source, linear(), evaluate_part(images, [0] * 60 + [1] * 60), classes=2)
    broken = tally.correct.reshape(2, 60) == 0
    assert tally.clean_correct.all()
    assert not (broken[0].any() and broken[1].any())


def digits(inputs: int = 40, fit_inputs: int = 70) -> Data:
    return load_data("digits").limit(inputs=inputs, fit_inputs=fit_inputs)


@pytest.mark.parametrize("budget", [Budget.linf(0.2), Budget.l2(1.5)], ids=str)
def test_one_delta_in_the_budget_for_all_and_the_seed_decides(budget: Budget) -> None:
    data, known = digits(), load_classifier("digits-cnn")
    first, again, other = (
        Universal(budget, CALLS).fitted_on(known, data.fit, seed=s).delta for s in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (1, 8, 8)
    assert bool(budget.contains(first))
    assert float(budget.size(first)) > 0.9 * budget.radius
    ready = prepare(known, data.evaluate.batch(np.arange(8))[0], classes=10, micro_batch=64)
    tally = measure(Universal(budget, CALLS).fitted_on(known, data.fit), ready, data.evaluate)
    random = measure(nppr.Uniform(budget), ready, data.evaluate, draws=1)
    assert tally.correct.sum() < random.correct.sum()


def test_inputs_that_are_broken_leave_the_direction_to_the_others() -> None:
    """Ninety inputs that are wrong by far pull one way, ten that can be broken the other way."""
    wrong, left = near(90, 4.0), near(10, -0.3, seed=1)
    images = torch.cat([wrong, left]).clamp(0, 1)
    part = fit_split(images, [1] * 100)
    margins = linear().forward(images)[:, 0]
    assert bool((margins[:90] > 1.2).all())
    source = Universal(Budget.linf(0.1), CALLS).fitted_on(linear(), part)
    assert torch.allclose(source.delta, 0.1 * W.sign(), atol=1e-5)


def separate() -> Data:
    """The fit split is of class 0 only, the evaluate split has other images."""
    images = torch.cat([near(130, 0.3), near(20, 0.3, seed=1)])
    labels = np.zeros(150, np.int64)
    held = StoredImages(images.numpy())
    none = np.arange(0)
    return Data(
        "separate",
        ("0", "1"),
        Split(Fit, held, np.arange(130), labels[:130]),
        Split(Select, held, none, labels[:0]),
        Split(Evaluate, held, np.arange(130, 150), labels[130:]),
    )


def test_fitted_on_fit_and_measured_on_evaluate() -> None:
    data = separate()
    asked: list[str] = []
    told: list[Progress] = []

    class Watched(StoredImages):
        def load(self, positions: IntArray) -> Tensor:
            asked.append("fit" if (positions < 130).all() else "evaluate")
            return super().load(positions)

    held = Watched(torch.cat([near(130, 0.3), near(20, 0.3, seed=1)]).numpy())
    watched = Split(Fit, held, data.fit.indices, data.fit.labels)
    source = Universal(Budget.linf(0.1), CALLS).fitted_on(linear(), watched, progress=told.append)
    assert not asked
    tally = measure(source, linear(), data.evaluate, classes=2)
    assert set(asked) == {"fit"}
    assert tally.kind is Evaluate
    assert (tally.correct == 0).all()
    assert told[-1].source == f"fit {NAME}"
    assert told[-1].done == told[-1].total == 14 * 130
    assert [each.done for each in told] == sorted(each.done for each in told)


def test_in_an_assessment() -> None:
    report = nppr.assess(
        linear(),
        separate(),
        budget=Budget.linf(0.1),
        sources=f"{NAME},uniform",
        measure=nppr.Measure(draws=4),
    )
    row = report.headline(NAME, Metric.AR)
    assert row is not None
    assert row.error is None
    assert (row.value, row.inputs) == (0.0, 20)
    assert report.settings.sources[0].options == {"calls": CALLS, "step": 0.25}


def test_without_a_fit_split_it_is_an_error() -> None:
    data = two_class_data(20)
    with pytest.raises(NoFitDataError, match="fit split must hold inputs"):
        Universal(Budget.linf(0.1)).fitted_on(linear(), data.fit)
    with pytest.raises(NoFitDataError, match="must be fitted before it is measured"):
        measure(Universal(Budget.linf(0.1)), linear(), separate().evaluate, classes=2)
    report = nppr.assess(
        half_classifier(),
        data,
        budget=Budget.linf(0.1),
        sources="universal,uniform",
        measure=nppr.Measure(draws=4),
    )
    row = report.headline("universal", Metric.AR)
    assert row is not None
    assert row.value is None
    assert row.flags == (NO_FIT_DATA,)
    assert report.headline("uniform", Metric.PR) is not None


class Counted(Linear):
    """Counts the images that gradients are taken of."""

    def __init__(self) -> None:
        super().__init__(W, -0.5 * float(W.sum()))
        self.gradients = 0

    def forward(self, x: Tensor) -> Tensor:
        self.gradients += len(x) if x.requires_grad else 0
        return super().forward(x)


def test_it_is_fitted_once_and_not_for_a_finished_measurement(tmp_path: Path) -> None:
    data, network = separate(), Counted()
    store = FileStore(tmp_path / "blocks")
    source = Universal(Budget.linf(0.1), CALLS).fitted_on(Classifier(network), data.fit)
    assert network.gradients == 0
    first = measure(source, linear(), data.evaluate, classes=2, store=store)
    assert network.gradients == 14 * 130
    measure(source, linear(), data.evaluate, classes=2)
    assert network.gradients == 14 * 130
    again = Universal(Budget.linf(0.1), CALLS).fitted_on(Classifier(network), data.fit)
    second = measure(again, linear(), data.evaluate, classes=2, store=store)
    assert network.gradients == 14 * 130
    assert np.array_equal(first.correct, second.correct)


def test_a_resumed_run_does_not_fit_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(resume: bool, sources: str = f"{NAME},uniform") -> nppr.Report:
        return nppr.assess(
            Linear(W, -0.5 * float(W.sum())),
            separate(),
            budget=Budget.linf(0.1),
            sources=sources,
            measure=nppr.Measure(draws=4),
            run=nppr.Run(out=tmp_path / "run", resume=resume),
        )

    first = run(resume=False)

    def fit_again(self: UniversalOn) -> None:  # noqa: ARG001
        raise AssertionError("fitted again")

    monkeypatch.setattr(UniversalOn, "_positions", fit_again)
    again = run(resume=True)
    assert again.numbers == first.numbers
    assert not any(row.error for row in again.numbers)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"calls": 0}, "calls"),
        ({"calls": -1}, "calls"),
        ({"calls": 63}, "calls"),
        ({"step": 0.0}, "step"),
        ({"step": 2.5}, "step"),
        ({"step": float("nan")}, "step"),
    ],
)
def test_bad_options_are_named(options: dict[str, float], name: str) -> None:
    with pytest.raises(SpecError, match=f"`{name}`"):
        Universal(Budget.linf(0.1), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("inputs", "calls"), [(130, 64), (130, 1000), (64, 640), (500, 1500)])
def test_its_calls_do_not_depend_on_the_size_of_the_split(inputs: int, calls: int) -> None:
    network = Counted()
    split = fit_split(near(inputs, 0.3), [0] * inputs)
    source = Universal(Budget.linf(0.1), calls).fitted_on(Classifier(network), split)
    assert bool(source.delta.any())
    assert network.gradients <= calls
    assert network.gradients > 0.5 * (calls // 64 * 64)
    assert Universal(Budget.linf(0.1), calls).fit_passes(inputs) == PASSES_PER_CALL * calls
