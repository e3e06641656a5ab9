"""The search without gradients: what it estimates, and what it finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import nppr
from nppr.core.budget import Budget
from nppr.data import Data, from_arrays
from nppr.errors import SpecError
from nppr.measuring.measurement import probe
from nppr.models import prepare
from nppr.noise.distribution import Distribution
from nppr.noise.family import Family
from nppr.noise.rungs import Dependency
from nppr.search.fitting import Fitting, _score_gradients
from nppr.search.search_settings import SCORES, Recipe, default_settings
from nppr.search.selection import find_clean_inputs

WEIGHTS = torch.tensor([1.0, -2.0, 0.5, 0.0])


class Silent(torch.nn.Module):
    """A linear model of a 2 x 2 image that gives no gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = torch.nn.Linear(1, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            score = images.flatten(1) @ WEIGHTS.to(images) + 0.25
        return torch.stack([score, torch.zeros_like(score)], 1)


def data(inputs: int = 600) -> Data:
    images = 0.5 + 0.05 * torch.randn(inputs, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    return from_arrays(images, torch.zeros(inputs, dtype=torch.int64), shares=(0.5, 0.2), classes=2)


def test_the_estimate_points_along_the_gradient() -> None:
    """On a linear model the gradient in the means is that of the weights, up to scale."""
    known, budget = data(), Budget.linf(0.1)
    ready = prepare(nppr.load_classifier(Silent()), probe(known.evaluate), classes=2)
    inputs = find_clean_inputs(ready, known.fit, features=False, keep_images=True)
    family = Family(Dependency.INDEPENDENT, upsampler="none")
    made = Distribution(family, (1, 2, 2), 2)
    with torch.no_grad():
        made.mixture.means.zero_()
    recipe = Recipe(inputs=250, draws=2, scores=True)
    fitting = Fitting("test", ready, inputs, budget, recipe, 40, 0)
    total = torch.zeros(4)
    with ready.frozen() as models:
        for number in range(40):
            made.zero_grad()
            _score_gradients(fitting, made, models.fast, number)
            assert made.mixture.means.grad is not None
            total += made.mixture.means.grad[0]
    cosine = float(torch.cosine_similarity(total, WEIGHTS, 0))
    assert cosine > 0.97


def test_a_model_without_gradients_gets_a_ladder() -> None:
    search = replace(default_settings(floors=(0.0,), calls=20_480), per_class=False)
    report = nppr.assess(
        Silent(),
        data(),
        budget=Budget.linf(0.15),
        sources="nppr,uniform,pgd",
        search=search,
        measure=nppr.Measure(draws=8),
        run=nppr.Run(anyway=True),
    )
    values = {rung.dependency: rung.value for rung in report.ladder}
    assert set(values) == {Dependency.INDEPENDENT, Dependency.LABEL, Dependency.PER_INPUT}
    # The worst pattern of a linear model is minus the signs of its weights.
    x, _ = data().evaluate.batch(np.arange(len(data().evaluate)))
    keep = x.flatten(1) @ WEIGHTS + 0.25 > 0
    worst = (x.flatten(1) - 0.15 * WEIGHTS.sign()) @ WEIGHTS + 0.25 > 0
    truth = float(worst[keep].double().mean())
    assert values[Dependency.INDEPENDENT] == pytest.approx(truth, abs=0.05)
    assert values[Dependency.PER_INPUT] <= truth + 0.05
    assert {flag.id for flag in report.flags} >= {"by-scores", "no-gradients"}
    assert any(row.source == "pgd" and row.error for row in report.numbers)


@pytest.mark.slow
def test_scores_do_as_well_as_gradients_in_a_box() -> None:
    found = {}
    for method in ("gradients", SCORES):
        search = replace(
            default_settings(Family(Dependency.INDEPENDENT), floors=(0.0,), calls=8192),
            method=method, per_input_calls=0,
        )  # fmt: skip
        report = nppr.assess(
            budget=Budget.box("rotate=25"),
            sources="nppr,uniform",
            search=search,
            measure=nppr.Measure(inputs=200, draws=8),
        )
        found[method] = report.ladder[0].value
    assert found[SCORES] == pytest.approx(found["gradients"], abs=0.02)


def test_what_scores_cannot_search_is_lowered() -> None:
    settings = default_settings().by_scores(box=False)
    assert (settings.family.dependency, settings.family.upsampler) == (Dependency.LABEL, "none")
    assert settings.step_calls == 2 * settings.recipe.inputs
    lowered = default_settings(Family(Dependency.INPUT)).by_scores(box=True).family
    assert (lowered.dependency, lowered.upsampler) == (Dependency.INDEPENDENT, "none")
    assert default_settings(calls=1000).by_scores(box=True).calls == 1000
    with pytest.raises(SpecError, match="`search` must be one of"):
        replace(default_settings(), method="guess")


@pytest.mark.slow
def test_noise_of_a_surrogate_is_kept_where_it_is_lower() -> None:
    """A chessboard of weights: its worst noise has the full resolution, which no coarse grid has."""
    board = 2.0 * (torch.arange(8)[:, None] + torch.arange(8)).remainder(2) - 1

    def silent(images: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = surrogate(images)
        return found

    linear = torch.nn.Linear(64, 2)
    surrogate = torch.nn.Sequential(torch.nn.Flatten(), linear)
    with torch.no_grad():
        linear.weight.copy_(torch.stack([board.flatten(), torch.zeros(64)]))
        linear.bias.copy_(torch.tensor([3.2, 0.0]))
    images = 0.5 + 0.05 * torch.randn(600, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    known = from_arrays(images, torch.zeros(600, dtype=torch.int64), classes=2)
    budget, family = Budget.linf(0.1), Family(Dependency.INDEPENDENT)
    learned = nppr.learn(
        surrogate, known, budget=budget,
        search=default_settings(family, calls=4000).without_positions(),
    )  # fmt: skip
    short = default_settings(family.with_(upsampler="bicubic"), calls=4096).without_positions()
    short = replace(short, method=SCORES, per_input_calls=0)
    with_it, without = (
        nppr.assess(
            silent,
            known,
            budget=budget,
            distributions=given,
            sources="nppr",
            search=short,
            measure=nppr.Measure(draws=8),
        )
        for given in (learned, ())
    )
    value, own = (
        next(row.value for row in report.numbers if row.name == "nppr:independent")
        for report in (with_it, without)
    )
    assert value is not None
    assert own is not None
    assert value < 0.1 < 0.9 < own
    assert with_it.distributions[0].given == "Sequential"
    assert without.distributions[0].given is None
    assert with_it.ladder[0].curve is None, "the quality is not that of what was given"
    assert "learned on Sequential" in with_it.to_html()


def test_noise_that_sees_features_is_no_rival() -> None:
    family = Family(Dependency.INPUT)
    linear = torch.nn.Linear(4, 2)
    surrogate = torch.nn.Sequential(torch.nn.Flatten(), linear)
    with torch.no_grad():
        linear.weight.copy_(torch.stack([WEIGHTS, torch.zeros(4)]))
        linear.bias.copy_(torch.tensor([0.25, 0.0]))
    settings = replace(default_settings(family, calls=2048).without_positions(), walks=False)
    learned = nppr.learn(surrogate, data(), budget=Budget.linf(0.2), search=settings)
    with pytest.raises(nppr.NpprError, match="sees no features"):
        nppr.assess(
            Silent(), data(), budget=Budget.linf(0.2), distributions=learned, sources="nppr",
            search=replace(default_settings(), method=SCORES),
        )  # fmt: skip
