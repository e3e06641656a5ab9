"""Closed forms: the law of each noise, and PR of classifiers where it is known."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from helpers import Linear, evaluate_part
from nppr.core.budget import Budget
from nppr.core.random_draws import DrawBlock
from nppr.errors import SpecError
from nppr.measuring.measurement import measure
from nppr.models import Classifier
from nppr.sources import Gaussian, Laplace, Uniform
from nppr.sources.fixed import Noise

DRAWS = DrawBlock(0, "evaluate", tuple(range(500)), 0, 16, torch.device("cpu"))
SHAPE = (1, 2, 2)


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        (Gaussian(Budget.linf(0.2)), stats.norm(scale=0.2)),
        (Gaussian(Budget.linf(0.2), scale=0.5), stats.norm(scale=0.1)),
        (Gaussian(Budget.l2(0.2)), stats.norm(scale=0.1)),
        (Laplace(Budget.linf(0.2)), stats.laplace(scale=0.2)),
        (Laplace(Budget.l2(0.2), scale=3), stats.laplace(scale=0.3)),
        (Uniform(Budget.linf(0.2)), stats.uniform(-0.2, 0.4)),
        (Uniform(Budget.linf(0.2), scale=0.5), stats.uniform(-0.1, 0.2)),
    ],
)
def test_noise_has_its_law_before_the_projection(noise: Noise, law: stats.rv_continuous) -> None:
    sample = noise.sample(DRAWS, SHAPE).double().flatten().numpy()
    assert stats.kstest(sample, law.cdf).pvalue > 1e-3


def test_pixels_are_independent() -> None:
    for noise in (Gaussian(Budget.linf(1.0)), Laplace(Budget.linf(1.0)), Uniform(Budget.linf(1.0))):
        sample = noise.sample(DRAWS, SHAPE).flatten(0, 1).flatten(1)
        correlation = torch.corrcoef(sample.T) - torch.eye(4)
        assert float(correlation.abs().max()) < 0.05


def test_projection_puts_the_tail_on_the_edge() -> None:
    budget = Budget.linf(0.2)
    x = torch.zeros(500, *SHAPE)
    delta = Gaussian(budget).perturb(None, x, x, DRAWS)  # type: ignore[arg-type]
    at_edge = float((delta.abs() == 0.2).double().mean())
    assert at_edge == pytest.approx(2 * stats.norm.sf(1), abs=0.01)


def test_pr_of_a_linear_classifier_under_gaussian_noise() -> None:
    """PR = Phi(margin / (sigma |w|)), with noise so small that nothing is projected or clipped."""
    w = torch.tensor([1.0, -2.0, 0.5, 1.5]).view(1, 2, 2)
    sigma = 0.02
    margins = np.array([-0.05, 0.0, 0.02, 0.05, 0.1])
    images = torch.full((5, 1, 2, 2), 0.5)
    for row, margin in enumerate(margins):
        images[row] += (w / w.pow(2).sum()) * margin
    classifier = Classifier(Linear(w, -0.5 * float(w.sum())))
    source = Gaussian(Budget.linf(0.2), scale=sigma / 0.2)
    tally = measure(source, classifier, evaluate_part(images, [0] * 5), classes=2, draws=8000)
    expected = stats.norm.cdf(margins / (sigma * float(w.norm())))
    error = np.sqrt(expected * (1 - expected) / tally.draws) + 1e-9
    assert np.abs((tally.rates - expected) / error).max() < 4


def test_pr_in_one_dimension_under_uniform_noise() -> None:
    """A threshold at 0.5: PR = P(x + u > 0.5) = (x + r - 0.5) / 2r, cut to [0, 1]."""
    x = np.array([0.35, 0.45, 0.49, 0.55, 0.62, 0.8])
    images = torch.tensor(x, dtype=torch.float32).view(-1, 1, 1, 1)
    classifier = Classifier(Linear(torch.ones(1), -0.5))
    tally = measure(
        Uniform(Budget.linf(0.2)), classifier, evaluate_part(images, [0] * 6), classes=2, draws=8000
    )
    expected = np.clip((x + 0.2 - 0.5) / 0.4, 0, 1)
    error = np.sqrt(expected * (1 - expected) / tally.draws) + 1e-9
    assert np.abs((tally.rates - expected) / error).max() < 4
    assert tally.clean_correct.tolist() == [False, False, False, True, True, True]


def test_clipping_to_images_is_part_of_the_measurement() -> None:
    """At x = 0 half of uniform noise is clipped away: P(clip(u) > 0.1) = (0.2 - 0.1) / 0.4."""
    classifier = Classifier(Linear(torch.ones(1), -0.1))
    images = torch.zeros(1, 1, 1, 1)
    tally = measure(
        Uniform(Budget.linf(0.2)), classifier, evaluate_part(images, [0]), classes=2, draws=8000
    )
    assert float(tally.rates[0]) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf])
def test_bad_scale_is_named(scale: float) -> None:
    with pytest.raises(SpecError, match="`scale`"):
        Gaussian(Budget.linf(0.1), scale)
