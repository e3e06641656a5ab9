from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torch import Tensor

from helpers import Stray, half_classifier
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.errors import SpecError
from nppr.models import Classifier, frozen
from nppr.noise import Dependency, Family
from nppr.noise.distribution import Distribution
from nppr.rare.latent_noise import Latent, make_latent
from nppr.sources import (
    PGD,
    Brightness,
    Clean,
    Gaussian,
    Laplace,
    SaltAndPepper,
    Source,
    Uniform,
)
from nppr.sources.learned import Learned

POINTS = 4000
SHAPE = (1, 2, 3)
X = torch.full((2, *SHAPE), 0.5)
Y = torch.tensor([0, 1])
BUDGETS = [Budget.linf(0.3), Budget.l2(0.7)]


def learned(budget: Budget, floor: float = 0.0, covariance: str = "diag") -> Learned:
    torch.manual_seed(0)
    family = Family(Dependency.LABEL, components=3, covariance=covariance, floor=floor)
    distribution = Distribution(family, SHAPE, 2)
    with torch.no_grad():
        distribution.mixture.logits.copy_(torch.tensor([0.0, 1.0, 2.0]))
        distribution.mixture.label_weights.weight.normal_()
    return Learned(budget, distribution)


SOURCES: list[Source] = [
    *(Gaussian(budget, scale) for budget in BUDGETS for scale in (1.0, 0.3)),
    *(Laplace(budget, scale) for budget in BUDGETS for scale in (1.0, 0.1)),
    *(Uniform(budget, scale) for budget in BUDGETS for scale in (1.0, 0.5, 1.5)),
    *(learned(budget, floor) for budget in BUDGETS for floor in (0.0, 0.4, 1.0)),
    learned(BUDGETS[0], 0.0, "lowrank:2"),
    learned(BUDGETS[1], 0.2, "full"),
]


def view(source: Source, x: Tensor = X) -> Latent:
    with frozen(Classifier(half_classifier())) as model:
        return make_latent(source, model, x, Y)


def normal(size: int, seed: int = 3) -> Tensor:
    return torch.randn(2, POINTS, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: f"{source.name}-{source.budget}")
def test_points_give_the_law_of_the_source(source: Source) -> None:
    latent = view(source)
    ours = latent.push(X, Y, normal(latent.size), (0, 1))
    block = DrawBlock(5, "evaluate", (0, 1), 0, POINTS, torch.device("cpu"), POINTS)
    with frozen(Classifier(half_classifier())) as model:
        theirs = source.perturb(model, X, Y, block)
    assert ours.shape == theirs.shape
    assert ours.dtype == X.dtype
    assert source.budget is not None
    source.budget.require(ours, "ours")
    w = torch.tensor([1.0, -1.0, 0.5, 2.0, 0.0, -0.3])
    for row in (0, 1):
        readings: list[Callable[[Tensor], Tensor]] = [
            lambda delta: delta.flatten(1) @ w,  # pixels together
            lambda delta: delta[:, 0, 1, 1],  # one pixel
            lambda delta: delta.flatten(1).square().sum(1).sqrt(),
            lambda delta: (delta.flatten(1)[:, 0] - delta.flatten(1)[:, 4]).abs(),
        ]
        for reading in readings:
            found, expected = (reading(d[row]).double().detach().numpy() for d in (ours, theirs))
            # Both sides round: atoms of the projection must not be told apart by their last digit.
            test = ks_2samp(found.round(5), expected.round(5))
            assert test.pvalue > 1e-4


def test_gaussian_points_are_the_noise_before_the_projection() -> None:
    latent = view(Gaussian(Budget.linf(0.3), 0.5))
    z = normal(latent.size)
    expected = (0.15 * z).clamp(-0.3, 0.3).view(2, POINTS, *SHAPE)
    assert torch.allclose(latent.push(X, Y, z, (0, 1)), expected, atol=1e-7)
    assert (expected.abs() == 0.3).any()


@pytest.mark.parametrize(
    ("source", "largest"),
    [
        (Uniform(Budget.linf(0.3)), 0.3),
        (Uniform(Budget.linf(0.3), 0.5), 0.15),
        (Uniform(Budget.linf(0.3), 2.0), 0.3),
        (Laplace(Budget.linf(0.3)), 0.3),
        (Laplace(Budget.linf(0.3), 0.02), 0.006 * 25 * math.log(2)),
    ],
)
def test_the_support_is_that_of_the_source(source: Source, largest: float) -> None:
    latent = view(source)
    z = torch.linspace(-30, 30, 601)[None, :, None].expand(1, -1, latent.size)
    path = latent.push(X[:1], Y[:1], z, (0,))[0, :, 0, 0, 0]
    assert path[-1].item() == pytest.approx(largest, rel=1e-6)
    assert path[0].item() == pytest.approx(-largest, rel=1e-6)
    # One path without jumps: larger points are larger noise.
    assert (path.diff() >= 0).all()
    assert path[300].item() == pytest.approx(0.0, abs=1e-6)


def test_laplace_tails_are_not_those_of_single_precision() -> None:
    """At z = 5, `P(Z > 5) = 2.87e-7 = exp(-t) / 2`."""
    latent = view(Laplace(Budget.linf(0.3), 0.02))
    z = torch.full((1, 1, latent.size), 5.0)
    found = latent.push(X[:1], Y[:1], z, (0,))[0, 0, 0, 0, 0].item() / 0.006
    assert found == pytest.approx(-math.log(2 * 2.866516e-7), rel=1e-4)


def test_one_coordinate_chooses_the_component() -> None:
    source = learned(BUDGETS[0])
    with torch.no_grad():
        source.distribution.mixture.label_weights.weight.zero_()
        source.distribution.mixture.raw.fill_(-20.0)
        source.distribution.mixture.means[:, 0] = torch.tensor([-1.0, 0.0, 1.0])
    latent = view(source)
    assert latent.choosing.stop - latent.choosing.start == 1
    assert latent.size == 1 + 6
    z = normal(latent.size)
    first = latent.push(X, Y, z, (0, 1))[0, :, 0, 0, 0]
    shares = [(first < -0.15).double().mean(), (first > 0.15).double().mean()]
    weights = torch.softmax(torch.tensor([0.0, 1.0, 2.0]), 0)
    assert shares[0] == pytest.approx(float(weights[0]), abs=0.02)
    assert shares[1] == pytest.approx(float(weights[2]), abs=0.03)
    other = z.clone()
    other[..., latent.choosing] = 9.0
    assert (latent.push(X, Y, other, (0, 1))[0, :, 0, 0, 0] > 0.15).all()


def test_points_are_left_as_they_are() -> None:
    for source in SOURCES:
        latent = view(source)
        z = normal(latent.size)
        latent.push(X, Y, z, (0, 1))
        assert torch.equal(z, normal(latent.size))


@pytest.mark.parametrize(
    "source",
    [PGD(BUDGETS[0]), Clean(), SaltAndPepper(), Brightness(), Stray(BUDGETS[0], 0.1, "mine")],
    ids=lambda source: source.name,
)
def test_sources_that_cannot_be_moved_are_refused(source: Source) -> None:
    with pytest.raises(SpecError, match="splitting cannot follow") as caught:
        view(source)
    assert source.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_points_of_another_size_are_refused() -> None:
    with pytest.raises(SpecError, match="6 coordinates, got 5"):
        view(Gaussian(BUDGETS[0])).push(X, Y, torch.zeros(2, 3, 5), (0, 1))


def test_pushing_is_by_point() -> None:
    """The points of an input do not touch each other, nor those of another input."""
    for source in SOURCES:
        latent = view(source)
        z = normal(latent.size)[:, :50]
        whole = latent.push(X, Y, z, (0, 1))
        one = latent.push(X[1:], Y[1:], z[1:, 7:9], (1,))
        np.testing.assert_allclose(whole[1:, 7:9].detach(), one.detach(), atol=1e-6)
