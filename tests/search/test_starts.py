from __future__ import annotations

import numpy as np
import pytest
import torch

import nppr
from nppr.core.budget import Budget, perturbed
from nppr.data import Data, from_arrays
from nppr.measuring.measurement import probe
from nppr.models import Classifier, prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.search_settings import default_settings
from nppr.search.selection import find_clean_inputs
from nppr.search.starts import scan_box

WORST = {0: 0.55, 1: -0.75}
"""The only brightness at which an image of each class is misread, and its neighbourhood."""

BUDGET = Budget.box("brightness=0.4")


class Notch(torch.nn.Module):
    """Two classes by the first pixel; each is misread around one brightness of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rest = images[:, 0, 1:].mean((1, 2)) - 0.5
        first = images[:, 0, 0, 0] - 0.5 - rest  # the brightness moves all pixels alike
        label = (first > 0).float()
        places = torch.where(label > 0, 0.4 * WORST[1], 0.4 * WORST[0])
        wrong = 1 - ((rest - places) / 0.06) ** 2
        sign = torch.where(wrong > 0, -1.0, 1.0) * (2 * label - 1)
        margin = sign * wrong.abs().clamp(0.01, 1.0)
        return torch.stack([-margin, margin], 1) + 0 * self.linear.weight.sum()


def data(inputs: int = 120) -> Data:
    images = torch.full((inputs, 1, 4, 4), 0.5)
    labels = torch.arange(inputs) % 2
    images[:, 0, 0, :] += 0.05 * (2 * labels - 1).float()[:, None]
    return from_arrays(images, labels, shares=(0.4, 0.3))


def test_a_scan_finds_the_worst_of_every_class() -> None:
    known, ready = data(), prepare(Classifier(Notch()), probe(data().evaluate), classes=2)
    inputs = find_clean_inputs(ready, known.fit, features=False, keep_images=True)
    scan = scan_box(ready, inputs, BUDGET, floor=0.0, most_calls=5000, seed=0)
    assert scan.calls == 65 * len(inputs) <= 5000
    for label, place in WORST.items():
        worst = scan.worst_of_class(label)
        assert worst is not None
        assert float(worst.tanh()) == pytest.approx(place, abs=0.1)
    made = Distribution(Family(Dependency.LABEL, components=2), (1, 1, 1), 2)
    law = scan.place(made)
    assert [float(each) for each in law.mixture.means.detach().tanh()] == [
        pytest.approx(place, abs=0.1) for place in WORST.values()
    ]
    x, y = known.evaluate.batch(np.arange(len(known.evaluate)))
    delta = law.mixture.means.detach().tanh()[y].view(-1, 1, 1, 1)
    with ready.frozen() as models, torch.no_grad():
        assert not bool((models.fast.logits(perturbed(x, delta, BUDGET)).argmax(1) == y).any())


def test_fewer_calls_scan_less() -> None:
    known, ready = data(), prepare(Classifier(Notch()), probe(data().evaluate), classes=2)
    inputs = find_clean_inputs(ready, known.fit, features=False, keep_images=True)
    assert scan_box(ready, inputs, BUDGET, floor=0.5, most_calls=640, seed=0).calls <= 640


def test_the_ladder_of_a_box_finds_narrow_places() -> None:
    """Gradients alone miss them: beside the notches the margin is nearly flat."""
    search = default_settings(Family(Dependency.LABEL), floors=(0.0,), calls=4096)
    report = nppr.assess(
        Notch(),
        data(),
        budget=BUDGET,
        sources="nppr,uniform,scan",
        search=search,
        measure=nppr.Measure(draws=8),
    )
    values = {rung.name: rung.value for rung in report.ladder}
    uniform = next(row.value for row in report.numbers if row.source == "uniform")
    assert uniform is not None
    assert uniform > 0.7
    assert values["nppr:independent"] <= 0.55
    assert values["nppr:label"] <= 0.05
    assert values["nppr:per-input"] <= 0.05


def test_a_transformation_without_gradients_is_searched_by_scores() -> None:
    def numpy_shift(images: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        moved = images.numpy() + theta.detach().numpy()[:, :, None, None]
        return torch.from_numpy(moved.clip(0, 1))

    budget = Budget.box(nppr.CustomTransform({"shift": (-0.4, 0.4)}, numpy_shift))
    search = default_settings(Family(Dependency.LABEL), floors=(0.0,), calls=4096)
    report = nppr.assess(
        Notch(),
        data(),
        budget=budget,
        sources="nppr,uniform",
        search=search,
        measure=nppr.Measure(draws=8),
    )
    values = {rung.name: rung.value for rung in report.ladder}
    assert values["nppr:label"] <= 0.05
    assert any(flag.id == "by-scores" for flag in report.flags)
