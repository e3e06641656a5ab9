from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from nppr.budget import Budget
from nppr.classifiers import Prepared, load_classifier, prepare
from nppr.data import load_data
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.fit.diagnostics import noise_diagnostics, weight_diagnostics  # FIXME
from nppr.fit.inputs import Found, find  # FIXME
from nppr.measure import probe
from nppr.types import Select


@pytest.fixture(scope="module")
def classifier() -> Prepared:
    data = load_data("digits")
    known = load_classifier("digits-cnn", data=data)
    return prepare(known, probe(data.evaluate), classes=10, micro_batch=64)


@pytest.fixture(scope="module")
def inputs(classifier: Prepared) -> Found[Select]:
    data = load_data("digits").limit(select_inputs=40)
    return find(classifier, data.select, features=False)


def noise(
    classifier: Prepared, inputs: Found[Select], budget: Budget, floor: float, mean: float
) -> dict[str, float]:
    family = Family(Dependency.LABEL, components=1, floor=floor, min_std=1e-6)
    made = Distribution(family, (1, 8, 8), 10)
    with torch.no_grad():
        made.mixture.means.fill_(mean)
        made.mixture.raw.fill_(-30)
    return noise_diagnostics(made, budget, classifier, inputs, seed=0)


def test_even_weights_use_all_components() -> None:
    found = weight_diagnostics(np.full((5, 4), 0.25))
    expected = {
        "entropy_ratio": 1, "max_weight": 0.25, "min_weight": 0.25, "std_weight": 0,
        "effective_components": 4,
    }  # fmt: skip
    assert found == pytest.approx(expected)


def test_one_component_per_context_is_sharp_although_all_are_used() -> None:
    found = weight_diagnostics(np.eye(3))
    assert found["entropy_ratio"] == pytest.approx(0)
    assert found["effective_components"] == pytest.approx(1)
    assert found["max_weight"] == 1


def test_a_single_component_has_ratio_1() -> None:
    assert weight_diagnostics(np.ones((3, 1)))["entropy_ratio"] == 1


def test_a_fixed_pattern_has_no_spread(classifier: Prepared, inputs: Found[Select]) -> None:
    found = noise(classifier, inputs, Budget.linf(0.1), 0.0, 5.0)
    assert found["realised_std"] < 1e-3
    assert found["share_at_edge"] == 1
    assert found["scale"] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("rho", [0.5, 1.0])
def test_a_floor_has_the_spread_of_its_uniform_noise(
    rho: float, classifier: Prepared, inputs: Found[Select]
) -> None:
    found = noise(classifier, inputs, Budget.linf(0.1), rho, 0.0)
    assert found["realised_std"] == pytest.approx(rho / math.sqrt(3), rel=0.03)
    assert found["share_at_edge"] == pytest.approx(0.01 if rho == 1 else 0, abs=0.005)
    assert found["floor"] == rho


def test_the_spread_does_not_depend_on_the_radius(
    classifier: Prepared, inputs: Found[Select]
) -> None:
    small, large = (
        noise(classifier, inputs, Budget.l2(radius), 0.5, 0.0)["realised_std"]
        for radius in (0.1, 2.0)
    )
    assert small == pytest.approx(large, rel=1e-4)
