from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nppr.noise.mixture import Given
from nppr.distributions.covariance import covariance  # FIXME
from nppr.fit.losses import LOSSES, cross_entropy, margin, regulariser  # FIXME

LOGITS = torch.tensor([[2.0, 1.0, -1.0], [0.0, 3.0, 1.0]])


def given(weights: list[float], means: Tensor) -> Given:
    components, latent = means.shape
    return Given(
        torch.tensor([weights]).log(),
        means[None],
        torch.zeros(1, components, latent),
        torch.ones(1, components, 1),
        covariance("diag", latent, 0.05),
    )


def test_margin_is_softplus_of_own_minus_best_other_plus_kappa() -> None:
    found = margin(LOGITS, torch.tensor([0, 2]), 0.5)
    by_hand = [math.log1p(math.exp(2 - 1 + 0.5)), math.log1p(math.exp(1 - 3 + 0.5))]
    assert found.tolist() == pytest.approx(by_hand)


def test_a_larger_kappa_asks_for_more() -> None:
    labels = torch.tensor([0, 2])
    assert bool((margin(LOGITS, labels, 2.0) > margin(LOGITS, labels, 0.0)).all())


def test_margin_is_never_negative_and_falls_to_zero_where_the_answer_is_wrong() -> None:
    logits = 1000 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(200) % 5
    found = margin(logits, labels, 1.0)
    assert bool((found >= 0).all())
    assert bool(torch.isfinite(found).all())
    assert float(margin(torch.tensor([[0.0, 500.0]]), torch.tensor([0]), 1.0)) == 0


def test_cross_entropy_lies_between_its_bound_and_zero() -> None:
    logits = torch.tensor([[0.0, 1000.0], [1000.0, 0.0], [0.3, 0.1]])
    found = cross_entropy(logits, torch.tensor([0, 0, 1]), 2.0)
    by_hand = math.log(math.exp(0.1) / (math.exp(0.1) + math.exp(0.3)))
    assert found.tolist() == pytest.approx([-12.0, 0.0, by_hand], abs=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_smaller_where_the_answer_is_more_wrong(name: str) -> None:
    right, wrong = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    label = torch.tensor([0])
    assert float(LOSSES[name](wrong, label, 1.0)) < float(LOSSES[name](right, label, 1.0))


def test_the_entropy_term_is_smallest_for_even_weights() -> None:
    means = torch.zeros(3, 2)
    even = float(regulariser(given([1 / 3] * 3, means), 1.0, 0.0))
    assert even == pytest.approx(-math.log(3))
    for weights in ([0.4, 0.3, 0.3], [0.9, 0.05, 0.05]):
        assert float(regulariser(given(weights, means), 1.0, 0.0)) > even


def test_diversity_is_zero_for_orthogonal_means_and_one_for_parallel_ones() -> None:
    weights = [0.5, 0.5]
    orthogonal = torch.tensor([[3.0, 0.0], [0.0, 0.2]])
    parallel = torch.tensor([[3.0, 3.0], [-1.0, -1.0]])
    assert float(regulariser(given(weights, orthogonal), 0.0, 1.0)) == pytest.approx(0.0)
    assert float(regulariser(given(weights, parallel), 0.0, 2.0)) == pytest.approx(2.0)


def test_one_component_has_no_diversity_and_nothing_costs_nothing() -> None:
    alone = given([1.0], torch.ones(1, 2))
    assert float(regulariser(alone, 0.0, 1.0)) == 0
    assert float(regulariser(given([0.9, 0.1], torch.ones(2, 2)), 0.0, 0.0)) == 0


def test_gradients_lead_to_even_weights_and_means_apart() -> None:
    logits = torch.tensor([[2.0, 0.0]], requires_grad=True)
    means = torch.tensor([[1.0, 0.1], [1.0, -0.1]], requires_grad=True)
    made = given([0.5, 0.5], means)
    pulled = Given(logits.log_softmax(-1), made.means, made.raw, made.growth, made.covariance)
    regulariser(pulled, 1.0, 1.0).backward()
    assert logits.grad is not None
    assert means.grad is not None
    assert logits.grad[0, 0] > 0 > logits.grad[0, 1]
    stepped = (means - 0.1 * means.grad).detach()
    apart = regulariser(given([0.5, 0.5], stepped), 0.0, 1.0)
    assert float(apart) < float(regulariser(given([0.5, 0.5], means.detach()), 0.0, 1.0))
